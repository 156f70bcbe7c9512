"""A run on virtual time: what it sends, when it ends, and what it measures."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

from gateways.memory.gateway import MemoryGateway
from pump import App
from pump.bench.measuring import Load, Measurement, Meter
from pump.bench.report import EndReason, Measured
from pump.bench.scratch import ScratchGateway, ScratchNames
from pump.errors import AccessDenied, ConfigurationError
from pump.message import Message
from pump.ports import ConsumerPort, ProducerPort
from pump.stores.spill import MemorySpill
from pump.subscription import Subscription, retry
from pump.testing import VirtualClock, a_message

Handle = Callable[[Message], Any]


class Counting(MemoryGateway):
    """One that counts its producers, and what it was asked before."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__(clock)
        self._counts = Counter({"open": 7})

    @property
    def request_counts(self) -> Mapping[str, int]:
        return self._counts

    def producer(self, queue: str) -> ProducerPort:
        self._counts["producer"] += 1
        return super().producer(queue)


class Unfit(MemoryGateway):
    """One that nothing can be received from."""

    def consumer(self, subscription: Subscription) -> ConsumerPort:
        raise ConfigurationError("queue", subscription.queue, "use another one")


class Refusing(MemoryGateway):
    """One to which nothing can be sent."""

    def producer(self, queue: str) -> ProducerPort:
        raise AccessDenied(queue, "send")


class Bench:
    """A run, and the time it runs in."""

    def __init__(
        self,
        clock: VirtualClock,
        measurement: Measurement,
        subscription: Subscription,
        load: Load,
    ) -> None:
        self.clock = clock
        self.measurement = measurement
        self._subscription = subscription
        self._load = load

    async def run(self, *, stop_after_s: float | None = None) -> Measured:
        work = self.measurement.run(
            self._subscription, lambda number: a_message("{}", group=self._load.group(number))
        )
        task = asyncio.create_task(work)
        await self.clock.settle()
        if stop_after_s is not None:
            await self.clock.advance(stop_after_s)
            self.measurement.stop()
        while not task.done():
            if not await self.clock.advance_to_next():
                await self.clock.settle()
        return await task


@asynccontextmanager
async def a_bench(
    handle_on: Callable[[VirtualClock], Handle],
    load: Load,
    *,
    gateway: Callable[[VirtualClock], MemoryGateway] = MemoryGateway,
    **settings: Any,
) -> AsyncIterator[Bench]:
    clock = VirtualClock()
    scratch = ScratchGateway(gateway(clock), ScratchNames("1a2b"), keeps_options=False)
    app = App(scratch, clock=clock, spill=MemorySpill())
    app.register(Message, handle_on(clock))
    declared = app.subscribe(Subscription(queue="work", request=Message, **settings))
    meter = app.telemetry = Meter(clock)
    async with app:
        measurement = Measurement(app, scratch, meter, load)
        yield Bench(clock, measurement, scratch.subscription(declared), load)


def lasting(seconds: float) -> Callable[[VirtualClock], Handle]:
    """A handler that takes so long."""

    def on(clock: VirtualClock) -> Handle:
        async def handle(message: Message) -> None:
            await clock.sleep(seconds)

        return handle

    return on


def failing(clock: VirtualClock) -> Handle:
    async def handle(message: Message) -> None:
        raise OSError("a secret of the message")

    return handle


async def test_without_a_rate_all_wait_and_the_last_of_them_waits_longest() -> None:
    async with a_bench(lasting(1.0), Load(messages=20), concurrency=10) as bench:
        found = await bench.run()

    assert (found.ended, found.sent, found.handled) == (EndReason.ALL, 20, 20)
    assert (found.wall_s, found.throughput) == (2.0, 10.0)
    assert found.latency is not None
    assert found.run is not None
    assert (found.latency.p50_s, found.latency.max_s) == (1.0, 2.0)
    assert (found.run.p50_s, found.run.max_s, found.busy_s) == (1.0, 1.0, 20.0)


async def test_with_a_rate_each_is_sent_when_it_is_due_and_measured_from_then() -> None:
    load = Load(messages=100, rate=10.0, limit_s=5.0)
    async with a_bench(lasting(1.0), load, concurrency=20) as bench:
        found = await bench.run()

    assert (found.ended, found.sent, found.handled) == (EndReason.ALL, 50, 50)
    assert found.send_s == pytest.approx(5.0, abs=0.01)
    assert found.latency is not None
    assert found.latency.max_s == pytest.approx(1.0, abs=0.01)
    assert found.wall_s == pytest.approx(5.9, abs=0.02)


async def test_when_it_cannot_keep_up_then_latency_grows() -> None:
    load = Load(messages=100, rate=10.0, limit_s=5.0)
    async with a_bench(lasting(1.0), load, concurrency=5) as bench:
        found = await bench.run()

    assert found.latency is not None
    assert found.latency.max_s > 4.0
    assert found.throughput < 10.0


async def test_when_the_time_is_over_then_it_says_how_far_it_came() -> None:
    async with a_bench(lasting(1.0), Load(messages=1_000, limit_s=3.5)) as bench:
        found = await bench.run()

    assert (found.ended, found.handled, found.wall_s) == (EndReason.TIME, 30, 3.5)


async def test_when_it_is_stopped_then_what_runs_finishes_and_is_not_measured() -> None:
    async with a_bench(lasting(1.0), Load(messages=100)) as bench:
        found = await bench.run(stop_after_s=1.5)

    assert (found.ended, found.handled) == (EndReason.STOPPED, 10)
    assert found.wall_s == pytest.approx(1.5)


async def test_when_it_is_stopped_long_before_the_next_is_due_then_it_ends_at_once() -> None:
    load = Load(messages=2, rate=0.001, limit_s=7_200.0)
    async with a_bench(lasting(1.0), load) as bench:
        found = await bench.run(stop_after_s=2.0)

    assert (found.ended, found.sent, found.handled) == (EndReason.STOPPED, 1, 1)
    assert found.wall_s == pytest.approx(2.0)
    assert found.kept_pace


async def test_when_it_is_stopped_before_it_began_then_no_handler_runs() -> None:
    handled: list[Message] = []

    async def handle(message: Message) -> None:
        handled.append(message)

    async with a_bench(lambda clock: handle, Load(messages=100)) as bench:
        bench.measurement.stop()
        found = await bench.run()

    assert (found.ended, found.sent, handled) == (EndReason.STOPPED, 0, [])


async def test_messages_that_fail_are_counted_with_what_was_raised() -> None:
    load = Load(messages=10, limit_s=600.0)
    async with a_bench(failing, load, failure=retry(1)) as bench:
        found = await bench.run()

    assert (found.ended, found.handled, found.rejected, found.retried) == (EndReason.ALL, 0, 10, 10)
    assert found.errors == {"handler: OSError": 20}
    assert found.latency is None


async def test_requests_are_those_between_the_first_send_and_the_last_settlement() -> None:
    async with a_bench(lasting(0.0), Load(messages=10), gateway=Counting) as bench:
        found = await bench.run()

    assert found.requests == {"producer": 1}
    assert found.send_requests == {"producer": 1}


async def test_what_the_pump_asked_of_its_gateway_is_counted() -> None:
    async with a_bench(lasting(0.0), Load(messages=10)) as bench:
        found = await bench.run()

    assert (found.calls.sends, found.calls.received, found.calls.settled) == (1, 10, 10)
    assert found.requests is None
    assert sum(count for _, count in found.timeline) == 10


@pytest.mark.parametrize("rate", [None, 10.0])
async def test_when_the_pump_stops_for_good_then_it_says_why(rate: float | None) -> None:
    load = Load(messages=10, rate=rate, limit_s=5.0)
    async with a_bench(lasting(1.0), load, gateway=Unfit) as bench:
        with pytest.raises(ConfigurationError):
            await bench.run()


async def test_messages_are_sent_in_the_groups_that_were_asked_for() -> None:
    groups: Counter[str | None] = Counter()

    async def handle(message: Message) -> None:
        groups[message.group] += 1

    async with a_bench(lambda clock: handle, Load(messages=6, groups=2)) as bench:
        await bench.run()

    assert groups == {"bench-0": 3, "bench-1": 3}


async def test_when_sending_fails_then_the_error_is_raised_and_nothing_stays_running() -> None:
    load = Load(messages=10, rate=10.0, limit_s=5.0)
    async with a_bench(lasting(3_600.0), load, gateway=Refusing) as bench:
        with pytest.raises(ExceptionGroup) as raised:
            await bench.run()

    assert raised.group_contains(AccessDenied)
    assert [task.get_name() for task in asyncio.all_tasks() if "bench" in task.get_name()] == []
