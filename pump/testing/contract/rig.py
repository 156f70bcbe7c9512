"""The rig: one gateway under test, its clock, and the few verbs the contract tests speak in."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from typing import Any, Protocol, TypeVar

import attrs
import pytest

from ...capabilities import Capabilities
from ...clock import SYSTEM_CLOCK, Clock, SystemClock
from ...message import Delivery, Message, new_id
from ...outcome import ACK, Refusal, Settlement
from ...ports import AdminPort, ConsumerPort, Gateway, ProducerPort, QueueStats
from ...subscription import Subscription
from ..another_process import ProcessAnswer, ProcessTask, run
from ..builders import a_subscription
from ..virtual_clock import VirtualClock

# What all parts of the contract suite have in common.


class ContractTests:
    """A part of the suite. Its user defines a `rig` fixture that yields a `Rig`."""

    pytestmark = pytest.mark.asyncio


T = TypeVar("T")

_LOOKS = 10
"""How often a queue is looked into, at most, that has messages and shows none."""


class ContractClock(Protocol):
    """What the suite needs of a clock: `VirtualClock` and `WaitingClock` have it."""

    def now_s(self) -> float:
        """Monotonic seconds, on the clock the gateway was given."""

    async def sleep(self, delay_s: float) -> None:
        """Return when that much time has passed, as a handler waits."""

    async def advance(self, seconds: float) -> None:
        """Let that much time pass."""

    async def settle(self) -> None:
        """Let everything that can happen now happen."""


class Network(Protocol):
    """What lies between a gateway and its broker, in the hands of a test."""

    def sever(self) -> None:
        """Cut every connection, as a broken cable does it: without a word."""

    def shut(self) -> None:
        """Sever, and refuse connections until `let_in`."""

    def let_in(self) -> None:
        """Take connections again."""


class WaitingClock(SystemClock):
    """The clock for real brokers: `advance` really waits."""

    async def advance(self, seconds: float) -> None:
        """Wait that long."""
        await SYSTEM_CLOCK.sleep(seconds)

    async def settle(self) -> None:
        """Give requests on their way a moment to reach the broker."""
        await SYSTEM_CLOCK.sleep(0.2)


def _short_id() -> str:
    full = new_id()
    return full[:8] + full[-6:]


@attrs.define(kw_only=True, eq=False)
class Rig:
    """A gateway, opened, with the facts about it that its `Capabilities` do not hold.

    The tests measure time in ticks, a lease is three. Leave the defaults on a `VirtualClock`;
    a real broker wants something like `tick_s=1, poll_s=1, slack_s=2`.
    """

    gateway: Gateway
    clock: ContractClock
    tick_s: float = 10.0
    """The suite's unit of time."""
    poll_s: float = 0.0
    """How long a receive waits for a message that is there."""
    slack_s: float = 0.0
    """How late the broker may be; zero also means that waiting is exact."""
    options: Mapping[str, Any] = attrs.field(factory=dict)
    """Queue options for every queue the suite makes."""
    ordered_options: Mapping[str, Any] = attrs.field(factory=dict)
    """More options for queues that use groups, de-duplication or strict order."""
    ordered_suffix: str = ""
    """How the names of such queues must end, where the provider tells them by their name."""
    suffix: str = ""
    """How the names of all queues end, to run the suite on one kind of queue."""
    deduplication_window_s: float = 300.0
    """How long a queue made with `ordered_options` remembers a de-duplication id."""
    redrives_on_receive: bool = False
    """True where the provider moves a message only when the next receive meets it."""
    has_groups_of_one: bool = False
    """True to send each of the suite's jobs in a group of its own, where a queue makes one line
    of those without."""
    patience_s: float = 60.0
    """How long the suite waits for what must happen at once, where time is real: a bound, which a
    test that fails waits out, and no measure."""
    lag_s: float | None = None
    """How much longer than asked for `advance` lets time pass; None for `slack_s`."""
    wait_s: float | None = None
    """How long the receives of the suite's own pumps wait; None for a subscription's default."""
    open_again: Callable[[], Awaitable[Gateway]] | None = None
    """For durable gateways: another gateway, opened, on the same storage."""
    in_another_process: Callable[[Clock], Gateway] | None = None
    """For gateways that declare `is_shared`: makes another one, unopened, on the same storage. It
    is called in another process, so it must survive pickling: a class or function of a module, or
    `functools.partial` of one."""
    is_simulated: bool = False
    """True where the provider is a model inside this process, which no other process reaches."""
    settle_requests: Callable[[], int] | None = None
    """How many requests to the broker settling has taken so far; without it nothing holds the
    gateway to its `settle_batch`."""
    store_raw: Callable[[str, bytes], Awaitable[None]] | None = None
    """Puts bytes into a queue as a program would that knows nothing of this gateway; None where
    no other program can."""
    behind_network: Callable[[], AbstractAsyncContextManager[tuple[Gateway, Network]]] | None = None
    """Another gateway, opened, on the same storage, by connections that the test may cut; without
    it nothing is known of the gateway's resilience."""
    leases_outlive_connections: bool = True
    """False where a broker takes back what a connection held as soon as that is gone."""
    hands_back_uncounted: bool = False
    """True where an abandoned delivery counts as no attempt, in a session that is closed too, but
    `has_uncounted_abandon` is not declared: a receive that is cancelled may cost one."""
    may_block: Collection[str] = ()
    """Where the event loop may be blocked for a moment, as `"file.py:function"`: calls of an SDK
    that the gateway cannot avoid and that no message pays for."""

    _run: str = attrs.field(factory=_short_id, init=False)
    _tasks: list[asyncio.Task[Any]] = attrs.field(factory=list, init=False)
    _started_at_s: dict[asyncio.Task[Any], float] = attrs.field(factory=dict, init=False)
    _ended_at_s: dict[asyncio.Task[Any], float] = attrs.field(factory=dict, init=False)

    @property
    def capabilities(self) -> Capabilities:
        """What the gateway says it can do."""
        return self.gateway.capabilities

    @property
    def admin(self) -> AdminPort:
        """The caretaker of the gateway's queues."""
        return self.gateway.admin()

    @property
    def lease_s(self) -> float:
        """The lease of every queue the suite makes, unless a test says otherwise."""
        return 3 * self.tick_s

    def needs(self, *names: str) -> None:
        """Skip this test unless the gateway has all of these capabilities."""
        for name in names:
            if not getattr(self.capabilities, name):
                pytest.skip(f"needs {name}")

    @property
    def abandons_uncounted(self) -> bool:
        """Whether an abandoned delivery counts as no attempt."""
        return self.hands_back_uncounted or self.capabilities.has_uncounted_abandon

    def needs_uncounted_abandon(self) -> None:
        """Skip this test where an abandoned delivery counts as an attempt."""
        if not self.hands_back_uncounted:
            self.needs("has_uncounted_abandon")

    def needs_time(self, seconds: float) -> None:
        """Skip this test where that much time takes too long to pass."""
        if seconds > 60 * self.tick_s:
            pytest.skip(f"would have to wait for {seconds:g} s")

    def most_messages(self, most: int) -> int:
        """How many messages a test may send, on a real broker 300."""
        return min(300, most) if self.slack_s else most

    def needs_seeds(self, seed: int) -> None:
        """Skip all seeds but the first where time is real: no two runs are alike there anyway."""
        if seed > 1 and self.slack_s:
            pytest.skip("in real time a seed repeats no run")

    @property
    def is_real_time(self) -> bool:
        """Whether time passes by itself, and things take it."""
        return not isinstance(self.clock, VirtualClock)

    @property
    def sure_s(self) -> float:
        """How long a receive waits for what must be there."""
        return max(self.poll_s, self.patience_s) if self.is_real_time else self.poll_s

    @property
    def patience(self) -> timedelta:
        """The same, for a consumer."""
        return timedelta(seconds=self.sure_s)

    @property
    def long_s(self) -> float:
        """How long a wait lasts whose end the test brings about before."""
        most_s = 6 * self.tick_s
        return max(most_s, 3 * self.patience_s) if self.is_real_time else most_s

    async def advance(self, seconds: float) -> None:
        """Let time pass, and a little more where the broker may be late."""
        await self.clock.advance(seconds + (self.slack_s if self.lag_s is None else self.lag_s))

    async def ends(self, *tasks: asyncio.Task[Any], within_s: float = 0.0) -> bool:
        """Whether these end by themselves when that much time has passed, or before."""
        if not isinstance(self.clock, WaitingClock):
            await self.clock.advance(within_s + self.slack_s)
            within_s = 0.0
        if self.is_real_time:
            # However slow the machine is: what ends when it should does not wait.
            await asyncio.wait(tasks, timeout=within_s + self.patience_s)
        return all(task.done() for task in tasks)

    async def settle(self) -> None:
        """Let everything that can happen now happen."""
        await self.clock.settle()

    async def let_redrive(self, queue: Channel) -> None:
        """Have the source asked once more, where only that moves a message away."""
        if self.redrives_on_receive:
            assert await queue.look() == []

    def start(self, work: Coroutine[Any, Any, T], what: str = "") -> asyncio.Task[T]:
        """Run something beside the test; what is still running at the end is cancelled."""
        task = asyncio.create_task(work, name=what or "what the test started")
        self._tasks.append(task)
        self._started_at_s[task] = self.clock.now_s()
        task.add_done_callback(self._note_end)
        return task

    def took_s(self, task: asyncio.Task[Any]) -> float:
        """How long something ran that `start` started."""
        return self._ended_at_s[task] - self._started_at_s[task]

    def late(self, *tasks: asyncio.Task[Any]) -> str:
        """What of these still waits, how many there are and for how long, for an assertion."""
        now_s = self.clock.now_s()
        waiting = [
            f"{task.get_name()}, for {now_s - self._started_at_s.get(task, now_s):g} s"
            for task in tasks
            if not task.done()
        ]
        return f"{len(waiting)} of {len(tasks)} still waiting: {'; '.join(waiting)}"

    def name(self, base: str) -> str:
        """A queue name that no other test uses."""
        return f"{base}-{self._run}{self.suffix}"

    def subscription(self, base: str = "orders", **fields: Any) -> Subscription:
        """A subscription to a queue of this test's own."""
        fields.setdefault("lease", timedelta(seconds=self.lease_s))
        if self.wait_s is not None:
            fields.setdefault("wait", timedelta(seconds=self.wait_s))
        fields["options"] = {**self.options, **fields.pop("options", {})}
        queue = fields.pop("queue", None) or self.name(base)
        return a_subscription(queue, **fields)

    async def open_queue(self, base: str = "orders", **fields: Any) -> Channel:
        """Create the queues of a subscription made from `fields`, and open the main one."""
        subscription = self.subscription(base, **fields)
        for spec in subscription.queue_specs():
            await self.admin.ensure(spec, subscription.make_channels)
        return self.channel(subscription)

    async def open_ordered_queue(self, base: str = "orders", **fields: Any) -> Channel:
        """Like `open_queue`, for groups, de-duplication and strict order."""
        if "dead_letter_queue" in fields:
            fields["dead_letter_queue"] += self.ordered_suffix
        queue = self.name(base) + self.ordered_suffix
        return await self.open_queue(base, queue=queue, options=self.ordered_options, **fields)

    def channel(self, subscription: Subscription, gateway: Gateway | None = None) -> Channel:
        """Both ends of a queue that exists, by this gateway or another."""
        by = gateway or self.gateway
        return Channel(
            rig=self,
            subscription=subscription,
            producer=by.producer(subscription.queue),
            consumer=by.consumer(subscription),
        )

    def networked(self) -> AbstractAsyncContextManager[tuple[Gateway, Network]]:
        """A gateway and the network before it; skips the test where there is none."""
        if self.behind_network is None:
            pytest.skip("nothing lies between the gateway and its broker (behind_network)")
        return self.behind_network()

    async def stats(self, queue: str) -> QueueStats | None:
        """What the gateway says of one queue, None when it does not know it."""
        return next((stats for stats in await self.admin.queues() if stats.name == queue), None)

    async def reopen(self) -> None:
        """Close the gateway and go on with another one on the same storage."""
        if self.open_again is None:
            raise RuntimeError("a durable gateway's rig needs open_again")
        await self.gateway.aclose()
        if isinstance(self.clock, VirtualClock):
            # What was stored by `now_s` means nothing any more.
            self.clock.reboot()
        self.gateway = await self.open_again()

    async def reach_elsewhere(self, queue: Channel) -> ProcessAnswer:
        """Have a gateway in another process receive from a queue, ack, and send to it."""
        if self.in_another_process is None:
            raise RuntimeError(
                "a gateway that declares is_shared needs a rig with in_another_process"
            )
        is_virtual = isinstance(self.clock, VirtualClock)
        return await run(
            ProcessTask(
                make=self.in_another_process,
                subscription=queue.subscription,
                poll_s=self.poll_s,
                now_s=self.clock.now_s() if is_virtual else None,
            )
        )

    async def aclose(self) -> None:
        """Cancel what `start` started, and close the gateway."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.gateway.aclose()

    def _note_end(self, task: asyncio.Task[Any]) -> None:
        self._ended_at_s[task] = self.clock.now_s()


@attrs.define(kw_only=True, eq=False)
class Channel:
    """Both ends of one queue, in the words of the tests."""

    rig: Rig
    subscription: Subscription
    producer: ProducerPort
    consumer: ConsumerPort

    @property
    def name(self) -> str:
        """The queue's name at the broker."""
        return self.subscription.queue

    @property
    def dead_letters(self) -> Channel:
        """The dead-letter queue of this one."""
        target = self.subscription.dead_letter_queue
        if target is None:
            raise RuntimeError("open the queue with a dead_letter_queue")
        lease = self.subscription.lease
        return self.rig.channel(a_subscription(target, lease=lease, options=self.rig.options))

    def another_consumer(self) -> ConsumerPort:
        """A consumer of its own connection, as another worker would have."""
        return self.rig.gateway.consumer(self.subscription)

    async def send(self, *messages: Message, delay_s: float = 0.0) -> Sequence[str]:
        """Send in this order."""
        return await self.producer.send(messages, delay_s=delay_s)

    async def receive(self, max_count: int = 1) -> list[Delivery]:
        """What one receive returns of what must be there."""
        return list(await self.consumer.receive(max_count=max_count, wait_s=self.rig.sure_s))

    async def look(self, max_count: int = 1) -> list[Delivery]:
        """What one receive returns, which may be nothing."""
        return list(await self.consumer.receive(max_count=max_count, wait_s=self.rig.poll_s))

    async def find_nothing(self) -> bool:
        """Whether nothing can be received right now."""
        return not await self.consumer.receive(max_count=10, wait_s=0.0)

    def start_receive(
        self, *, wait_s: float, max_count: int = 1
    ) -> asyncio.Task[Sequence[Delivery]]:
        """Begin a receive and go on without waiting for it."""

        async def receive() -> Sequence[Delivery]:
            return await self.consumer.receive(max_count=max_count, wait_s=wait_s)

        what = f"a receive of up to {max_count} from {self.name} that waits {wait_s:g} s"
        return self.rig.start(receive(), what)

    async def take(self, count: int) -> list[Delivery]:
        """Receive until there are `count`, or no more to be had."""
        taken: list[Delivery] = []
        while len(taken) < count:
            batch = await self._look_well(count - len(taken))
            if not batch:
                break
            taken.extend(batch)
        return taken

    async def take_and_ack(self, count: int) -> list[Message]:
        """Receive and ack until there were `count`, or no more to be had."""
        messages: list[Message] = []
        while len(messages) < count:
            batch = await self._look_well(count - len(messages))
            if not batch:
                break
            messages.extend(delivery.message for delivery in batch)
            assert not await self.settle(*(Settlement(each, ACK) for each in batch))
        return messages

    async def _look_well(self, max_count: int) -> list[Delivery]:
        """A look that finds nothing may be too short on a busy machine: the broker knows.

        Not where there are groups: what it counts as waiting may wait for its group.
        """
        found = await self.look(max_count)
        if self.rig.is_real_time and not self.rig.gateway.capabilities.has_groups:
            for _ in range(_LOOKS):
                if found or not (await self.rig.admin.stats(self.name)).visible:
                    break
                found = await self.look(max_count)
        return found

    async def settle(self, *settlements: Settlement) -> Sequence[Refusal]:
        """Settle, and return what was refused."""
        return await self.consumer.settle(settlements)

    async def extend(self, *deliveries: Delivery, lease_s: float) -> Sequence[Refusal]:
        """Extend, and return what was refused."""
        return await self.consumer.extend(deliveries, lease_s=lease_s)
