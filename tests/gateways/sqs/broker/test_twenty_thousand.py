"""20,000 messages on a bad road: one request in twenty fails, in every way the proxy knows."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from datetime import timedelta

import attrs
import pytest

from gateways.sqs import SqsGateway, TransportKind
from pump import App, Subscription
from pump.backoff import Backoff
from pump.clock import SYSTEM_CLOCK
from pump.errors import GatewayError, SendFailed
from pump.events import Event, OutcomeEvent, Status
from pump.loop import PumpStats
from pump.message import Message
from pump.outcome import DeferMessage, InvalidMessage, RejectMessage
from pump.ports import ProducerPort
from pump.stores.spill import MemorySpill
from pump.subscription import hybrid
from pump.testing.contract.workshop import Entry, Outage, WatchedGateway
from tests.brokers.fault_plan import FaultPlan

from .bench import Bench, Job
from .plain_sqs import packed
from .wiretap import Wiretap

pytestmark = [pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(840)]
SEED = 20_000
A_SECOND = Backoff(initial=timedelta(seconds=1), maximum=timedelta(seconds=1), jitter=0.5)
LEASE = timedelta(seconds=20)
"""What a lost answer to a receive has hidden comes again after it."""


def fate_of(number: int) -> str:
    """What its handler does with a message; by its number, so that both sides know."""
    match number % 100:
        case 0 | 1:
            return "reject"
        case 2:
            return "invalid"
        case 3:
            return "fail"
        case 4 | 5 | 6:
            return "defer"
        case _:
            return "work"


@attrs.define(eq=False)
class Ledger:
    """Everything that became of the messages."""

    count: int
    handled: Counter[int] = attrs.field(factory=Counter)
    ended: dict[str, set[Status]] = attrs.field(factory=dict)
    """By id, the final statuses that observers were told."""
    all_ended: asyncio.Event = attrs.field(factory=asyncio.Event)

    def __call__(self, event: Event) -> None:
        if isinstance(event, OutcomeEvent) and event.status is not Status.RETRYING:
            self.ended.setdefault(event.message_id, set()).add(event.status)
            if len(self.ended) == self.count:
                self.all_ended.set()

    async def handle(self, job: Job) -> None:
        number = int(job.task)
        self.handled[number] += 1
        match fate_of(number):
            case "reject":
                raise RejectMessage("told to")
            case "invalid":
                raise InvalidMessage("told to")
            case "fail":
                raise ValueError("told to")
            case "defer" if self.handled[number] == 1:
                raise DeferMessage(timedelta(0))


async def send(producer: ProducerPort, messages: Sequence[Message]) -> int:
    """Send as a careful program does: what is not known as sent is sent again, as it is."""
    repeats = 0
    while messages:
        try:
            await producer.send(messages)
            return repeats
        except SendFailed as error:
            failed = {id_ for id_, _ in error.failures}
            messages = [each for each in messages if each.id in failed]
        except GatewayError:
            pass
        repeats += 1
    return repeats


@attrs.define(eq=False)
class Journey:
    """A running app behind the proxy, and the messages that are sent to it."""

    bench: Bench
    proxy: Wiretap
    suffix: str
    count: int
    ledger: Ledger
    diary: list[Entry] = attrs.field(factory=list)
    spill: MemorySpill = attrs.field(factory=MemorySpill)
    stats: PumpStats = attrs.field(factory=PumpStats)
    repeats: int = 0

    def name(self, base: str) -> str:
        return base + self.suffix

    async def make(self, max_attempts: int) -> None:
        """Run it to its end: the source is empty, and everything has been told."""
        door = self.bench.aws.through(self.proxy.url)
        gateway = await self.bench.gateway(door, max_attempts=max_attempts)
        app = self._app(gateway)
        async with app, app.pumping() as dispatcher:
            self.stats = dispatcher.performers[0].stats
            producer = gateway.producer(self.name("jobs"))
            for start in range(0, self.count, 500):
                self.repeats += await send(producer, self._messages(start, start + 500))
            await self.ledger.all_ended.wait()
            while sum(await self.bench.plain.depth(self.name("jobs"))):
                await SYSTEM_CLOCK.sleep(0.5)

    def _app(self, gateway: SqsGateway) -> App:
        watched = WatchedGateway(gateway, self.diary, Outage())
        app = App(watched, spill=self.spill, observers=[self.ledger])
        app.register(Job, self.ledger.handle)
        app.subscribe(
            Subscription(
                queue=self.name("jobs"),
                request=Job,
                dead_letter_queue=self.name("dead"),
                invalid_queue=self.name("invalid"),
                failure=hybrid(1, backoff=A_SECOND),
                concurrency=50,
                lease=LEASE,
                wait=timedelta(seconds=2),
            )
        )
        return app

    def _messages(self, start: int, end: int) -> list[Message]:
        return [
            Message(body=b'{"task": "%d"}' % number, id=f"m-{number}", group=f"g-{number % 200}")
            for number in range(start, min(end, self.count))
        ]

    async def routed_to(self, base: str) -> tuple[Counter[int], set[int]]:
        """What lies in a target queue, and what still waits here to be sent there."""
        queue = self.name(base)
        found = await self.bench.plain.take_all(queue)
        waiting = [each for each in await self.spill.all() if each.destination == queue]
        return (
            Counter(_number(packed(raw)["id"]) for raw in found),
            {_number(each.message.id) for each in waiting},
        )

    def summary(self) -> str:
        faults = ", ".join(f"{kind.value} {count}" for kind, count in self.proxy.faults.items())
        calls = sum(self.proxy.counts.values())
        return (
            f"\n{self.count} messages{self.suffix} through {self.bench.transport.value}: "
            f"{calls} requests, {sum(self.proxy.faults.values())} faults ({faults}); "
            f"{self.stats.received} deliveries, {self.stats.leases_lost} leases lost, "
            f"{self.repeats} sends repeated by the program"
        )


def _number(id_: str) -> int:
    return int(id_.removeprefix("m-"))


@pytest.mark.parametrize(
    ("transport", "suffix", "count", "max_attempts"),
    [
        (TransportKind.AIOBOTO3, "", 20_000, 4),
        # The SDK does not ask again: every fault is ours to meet.
        (TransportKind.BOTO3, "", 2_000, 1),
        (TransportKind.AIOBOTO3, ".fifo", 2_000, 1),
        (TransportKind.BOTO3, ".fifo", 1_000, 4),
        (TransportKind.LEAN, "", 2_000, 1),
        (TransportKind.LEAN, ".fifo", 1_000, 4),
    ],
    ids=["aioboto3", "boto3", "aioboto3-fifo", "boto3-fifo", "lean", "lean-fifo"],
)
async def test_when_one_request_in_twenty_fails_then_none_is_lost_and_none_settled_twice(
    bench: Bench,
    suffix: str,
    count: int,
    max_attempts: int,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """R17, R25, R26, R51, R52, laws 1 and 2."""
    plan = FaultPlan.random(SEED, rate=0.05)
    async with Wiretap(bench.aws.endpoint_url, plan, keeps=False) as proxy:
        journey = Journey(bench, proxy, suffix, count, Ledger(count))
        await journey.make(max_attempts)
    with capsys.disabled():
        print(journey.summary())

    fates = {number: fate_of(number) for number in range(count)}
    dead, dead_waiting = await journey.routed_to("dead")
    invalid, invalid_waiting = await journey.routed_to("invalid")
    assert set(journey.ledger.handled) == set(fates), "handled at least once"
    assert set(dead) | dead_waiting == {
        number for number, fate in fates.items() if fate in ("reject", "fail")
    }
    assert set(invalid) | invalid_waiting == {
        number for number, fate in fates.items() if fate == "invalid"
    }
    for number, fate in fates.items():
        is_work = fate in ("work", "defer")
        ended = journey.ledger.ended[f"m-{number}"]
        assert ended == {Status.PROCESSED if is_work else Status.DEAD_LETTERED}
    receipts = Counter(what for verb, what in journey.diary if verb == "settled receipt")
    assert set(receipts.values()) == {1}, "a receipt was confirmed twice"
    assert journey.stats.restarts == 0
    assert sum(await bench.plain.depth(journey.name("jobs"))) == 0
    if suffix:
        assert set(dead.values()) == set(invalid.values()) == {1}, "T10: single on FIFO"
