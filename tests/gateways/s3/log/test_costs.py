"""What the layout of group commit costs, in requests and in time, counted on a model."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import attrs
import pytest

from gateways.s3.layout import Layout, QueueDescription
from gateways.s3.store.objects import Reply, Request, ServerTime
from pump.message import Message
from pump.outcome import ACK, Settlement
from pump.testing import VirtualClock
from pump.testing.builders import a_message

from ..model_store import ModelStore
from .worlds import LogGateway, World

LATENCY_S = 0.06


class DistantStore(ModelStore):
    """A store that takes its time, half of it on the way there."""

    def __init__(self, world: World, time: ServerTime) -> None:
        super().__init__(world.s3, time, world.clock.now_s)
        self._clock = world.clock

    async def perform(self, request: Request) -> Reply:
        sent_s = self._clock.now_s()
        await self._clock.sleep(LATENCY_S / 2)
        reply, date_s = self.s3.apply(request), self.s3.date_s
        await self._clock.sleep(LATENCY_S / 2)
        self._time.observe(date_s, sent_s=sent_s, received_s=self._clock.now_s())
        return reply


class DistantWorld(World):
    def store(self, time: ServerTime) -> DistantStore:
        return DistantStore(self, time)


@attrs.define
class Load:
    """Producers and consumers of one or several processes on one queue."""

    clock: VirtualClock
    world: World
    handled: list[str] = attrs.field(factory=list)

    def process(self) -> LogGateway:
        self.world.facts["q"] = QueueDescription(name="q", layout=Layout.LOG)
        return LogGateway(self.world)

    async def produce(self, gateway: LogGateway, *, sends: int, batch: int) -> None:
        for _ in range(sends):
            messages: list[Message] = [a_message(b"x" * 200) for _ in range(batch)]
            await gateway.queue("q").send(messages, delay_s=0.0)

    async def consume(self, gateway: LogGateway, *, total: int, max_count: int) -> None:
        queue = gateway.queue("q")
        while len(self.handled) < total:
            received = await queue.receive(max_count=max_count, wait_s=2.0, lease_s=60.0)
            assert not await queue.settle([Settlement(each, ACK) for each in received])
            self.handled += [each.message.id for each in received]

    async def run(self, *work: Awaitable[None]) -> float:
        """Let it all happen, and return how long it took."""
        began_s = self.clock.now_s()
        tasks = [asyncio.ensure_future(each) for each in work]
        running = tasks
        while running:
            assert await self.clock.advance_to_next()
            for task in tasks:
                if task.done():
                    # What failed ends the test: the others might wait for it without end.
                    task.result()
            running = [task for task in running if not task.done()]
        return self.clock.now_s() - began_s


def billable(world: World) -> int:
    """All but removes, which cost nothing."""
    return sum(world.s3.counts[name] for name in ("put", "get", "list"))


async def test_when_a_process_is_under_load_then_a_message_costs_a_tenth_of_a_request() -> None:
    """R50, R53: 50 consumers that take one at a time, 20 producers that send one at a time."""
    clock = VirtualClock()
    load = Load(clock, DistantWorld(clock))
    gateway = load.process()
    total = 20 * 100

    await load.run(
        *(load.produce(gateway, sends=100, batch=1) for _ in range(20)),
        *(load.consume(gateway, total=total, max_count=1) for _ in range(50)),
    )

    assert len(set(load.handled)) == len(load.handled) == total
    assert billable(load.world) / total <= 0.25
    await gateway.aclose()


@pytest.mark.parametrize("processes", [1, 3])
async def test_when_batches_are_used_under_load_then_a_message_costs_far_less(
    processes: int,
) -> None:
    """R50: also when processes commit against each other."""
    clock = VirtualClock()
    load = Load(clock, DistantWorld(clock))
    gateways = [load.process() for _ in range(processes)]
    total = processes * 10 * 200

    await load.run(
        *(load.produce(each, sends=20, batch=10) for each in gateways for _ in range(10)),
        *(load.consume(each, total=total, max_count=10) for each in gateways for _ in range(20)),
    )

    assert len(set(load.handled)) == len(load.handled) == total
    assert billable(load.world) / total <= 0.1
    for gateway in gateways:
        await gateway.aclose()


async def test_when_each_request_takes_60_ms_then_more_than_500_messages_pass_a_second() -> None:
    """R50: sent, received and acked; 100 consumers, ten at a time; computed in virtual time."""
    clock = VirtualClock()
    load = Load(clock, DistantWorld(clock))
    gateway = load.process()
    total = 20 * 500

    took_s = await load.run(
        *(load.produce(gateway, sends=50, batch=10) for _ in range(20)),
        *(load.consume(gateway, total=total, max_count=10) for _ in range(100)),
    )

    assert len(set(load.handled)) == len(load.handled) == total
    assert total / took_s >= 500
    assert billable(load.world) / total <= 0.1
    await gateway.aclose()


async def test_when_messages_were_sent_one_by_one_then_their_bodies_are_read_side_by_side() -> None:
    """R50: each has a segment of its own; one after the other they would outlast their leases."""
    clock = VirtualClock()
    load = Load(clock, DistantWorld(clock))
    sender, receiver = load.process(), load.process()
    await load.run(load.produce(sender, sends=30, batch=1))
    load.world.s3.counts.clear()

    took_s = await load.run(load.consume(receiver, total=30, max_count=30))

    # A look, a take, 30 reads at once, an ack.
    assert took_s == pytest.approx(4 * LATENCY_S)
    assert load.world.s3.counts["get"] == 31
    await load.run(sender.aclose(), receiver.aclose())


async def test_when_it_is_closed_during_an_ack_then_what_that_leaves_is_cleaned_up_first() -> None:
    """R5: no task outlives the queue."""
    clock = VirtualClock()
    load = Load(clock, DistantWorld(clock))
    gateway, tasks = load.process(), asyncio.all_tasks()
    queue = gateway.queue("q")
    await load.run(load.produce(gateway, sends=1, batch=1))
    receiving = asyncio.ensure_future(queue.receive(max_count=1, wait_s=0.0, lease_s=60.0))
    while not receiving.done():
        await clock.advance_to_next()
    [held] = receiving.result()
    settling = asyncio.ensure_future(queue.settle([Settlement(held, ACK)]))
    await clock.settle()

    closing = asyncio.ensure_future(gateway.aclose())
    while not closing.done():
        await clock.advance_to_next()

    assert settling.result() == []
    assert asyncio.all_tasks() <= tasks
    assert not [key for key in load.world.s3.objects if "/segments/" in key]


async def test_when_nobody_asks_then_an_idle_process_makes_no_request() -> None:
    """R50: neither commits nor looks."""
    clock = VirtualClock()
    load = Load(clock, World(clock))
    gateway = load.process()
    await gateway.queue("q").send([a_message()], delay_s=0.0)
    before = billable(load.world)

    await clock.advance(600)

    assert billable(load.world) == before
    await gateway.aclose()


async def test_when_many_wait_for_an_empty_queue_then_they_share_one_look_a_second() -> None:
    """R4, R50: 200 receives of 20 s each, one after the other."""
    clock = VirtualClock()
    load = Load(clock, World(clock))
    queue = load.process().queue("q")

    async def wait(turns: int) -> None:
        for _ in range(turns):
            assert await queue.receive(max_count=1, wait_s=20.0, lease_s=60.0) == []

    took_s = await load.run(*(wait(5) for _ in range(200)))

    assert took_s == pytest.approx(100.0, abs=0.5)
    assert billable(load.world) <= 110
    await queue.aclose()


@pytest.mark.parametrize(
    ("what", "max_requests"),
    [("send", 2), ("receive", 1), ("ack", 1), ("send while one waits", 2)],
)
async def test_when_a_single_thing_is_done_then_it_costs_what_the_table_says(
    what: str, max_requests: int
) -> None:
    """R50: the table of `gateways.s3.log`."""
    clock = VirtualClock()
    world = World(clock)
    queue = Load(clock, world).process().queue("q")
    await queue.send([a_message()], delay_s=0.0)
    [held] = await queue.receive(max_count=1, wait_s=0.0, lease_s=60.0)
    await queue.send([a_message()], delay_s=0.0)

    async def send_to_waiting() -> None:
        await queue.receive(max_count=1, wait_s=0.0, lease_s=60.0)
        waiting = asyncio.ensure_future(queue.receive(max_count=1, wait_s=5.0, lease_s=60.0))
        await clock.settle()
        world.s3.counts.clear()
        await queue.send([a_message()], delay_s=0.0)
        assert len(await waiting) == 1

    deeds: dict[str, Callable[[], Awaitable[object]]] = {
        "send": lambda: queue.send([a_message()], delay_s=0.0),
        "receive": lambda: queue.receive(max_count=1, wait_s=0.0, lease_s=60.0),
        "ack": lambda: queue.settle([Settlement(held, ACK)]),
        "send while one waits": send_to_waiting,
    }
    world.s3.counts.clear()
    await deeds[what]()

    assert billable(world) == max_requests
    await queue.aclose()
