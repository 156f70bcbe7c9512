"""Pumphouse by itself, on the memory gateway and on the local one.

One command, a handler that only counts, all defaults.
"""

from __future__ import annotations

import asyncio
import gc
import resource
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import attrs

from gateways.local import LocalGateway
from gateways.memory import MemoryGateway
from pump import App, Command, Subscription
from pump.dispatcher import Dispatcher
from pump.event_loop import run as run_loop
from pump.outcome import ACK, Settlement
from pump.ports import Gateway
from pump.stores.spill import MemorySpill
from pump.subscription import MakeChannels

from ..reading import Reading, Stopwatch

POST_BATCH = 100
"""Requests a call of `post_all`: the group size of the raw SQLite contender."""
_SAMPLES = 10
_AT_ONCE = 1000
"""The longest the queue gets while memory is watched: what grows must not be the queue."""
_STATM = Path("/proc/self/statm")


class Tick(Command):
    """What is sent."""

    number: int


class Parcel(Command):
    """What is sent when the size of it matters: a body of a kibibyte."""

    number: int
    load: str = "x" * 1000


SUBSCRIPTION = Subscription(queue="ticks", request=Tick)


class BenchmarkApp:
    """An app whose handler counts, and nothing else."""

    def __init__(
        self, gateway: Gateway, request: type[Tick | Parcel] = Tick, **options: Any
    ) -> None:
        # A benchmark leaves no data folder behind.
        self.app = App(gateway, spill=MemorySpill(), **options)
        self._request = request
        self._gateway = gateway
        self._handled = 0
        self._milestone = 0
        self._reached = asyncio.Event()
        self.app.register(request, self._handle)
        self.app.subscribe(attrs.evolve(SUBSCRIPTION, request=request))

    async def _handle(self, request: Tick | Parcel) -> None:
        self._handled += 1
        if self._handled == self._milestone:
            self._reached.set()

    async def make_queue(self) -> None:
        """Make the queue, so that posting may start before the pump does."""
        for spec in SUBSCRIPTION.queue_specs():
            await self._gateway.admin().ensure(spec, MakeChannels.CREATE)

    async def post_in_batches(self, count: int) -> None:
        """Post `count` requests, a hundred a call."""
        for start in range(0, count, POST_BATCH):
            numbers = range(start, min(start + POST_BATCH, count))
            await self.app.post_all([self._request(number) for number in numbers])

    async def post_one_by_one(self, count: int) -> None:
        """Post `count` requests, each awaited."""
        for number in range(count):
            await self.app.post(self._request(number))

    @asynccontextmanager
    async def pumping(self) -> AsyncIterator[Dispatcher]:
        """Pump inside the body; on the way out, drain: what was handled is acked then."""
        dispatcher = self.app.dispatcher()
        async with asyncio.TaskGroup() as group:
            # A pump that breaks cancels the body, so that nothing waits for ever.
            group.create_task(dispatcher.run())
            yield dispatcher
            dispatcher.drain()

    async def wait_until_handled(self, count: int) -> None:
        """Return when `count` messages have been handled since the beginning."""
        self._milestone = count
        self._reached.clear()
        if self._handled < count:
            await self._reached.wait()

    async def left_behind(self) -> int:
        """How many messages the queue still has; a benchmark that loses acks measures nothing."""
        stats = {each.name: each for each in await self._gateway.admin().queues()}
        own = stats[SUBSCRIPTION.queue]
        return own.visible + own.in_flight + own.delayed


def run_memory(count: int) -> Reading:
    """On the memory gateway, posting in batches."""
    return run_loop(measure(MemoryGateway(), count))


def run_memory_single(count: int) -> Reading:
    """On the memory gateway, each request posted and awaited by itself."""
    return run_loop(measure(MemoryGateway(), count, is_batched=False))


def run_local(count: int) -> Reading:
    """On the local gateway: every accepted send and every ack survives a power cut."""
    with tempfile.TemporaryDirectory(dir=".") as folder:
        return run_loop(measure(LocalGateway(Path(folder) / "queues"), count))


async def measure(
    gateway: Gateway, count: int, *, is_batched: bool = True, **options: Any
) -> Reading:
    """Post everything, then pump until everything is handled and acked.

    `options` are `BenchmarkApp`'s, and so the app's.
    """
    bench = BenchmarkApp(gateway, **options)
    watch = Stopwatch()
    async with bench.app:
        await bench.make_queue()
        with watch.span("send"):
            await (bench.post_in_batches(count) if is_batched else bench.post_one_by_one(count))
        with watch.span("pump"):
            async with bench.pumping() as dispatcher:
                await bench.wait_until_handled(count)
        processed = dispatcher.performers[0].stats.processed
        assert processed == count, f"{processed} of {count} messages were acked"
        assert await bench.left_behind() == 0
    return watch.reading(count)


# The ports without a pump, to compare with.


def run_ports(count: int) -> Reading:
    """Receive a batch, ack it, and again.

    It asks for as many at once as the gateway gives, which makes the pump's overhead look larger
    than a loop with the pump's own window would.
    """
    return run_loop(_measure_ports(count))


async def _measure_ports(count: int) -> Reading:
    gateway = MemoryGateway()
    bench = BenchmarkApp(gateway)
    watch = Stopwatch()
    async with bench.app:
        await bench.make_queue()
        await bench.post_in_batches(count)
        port = gateway.consumer(SUBSCRIPTION)
        batch = gateway.capabilities.receive_batch
        with watch.span("pump"):
            left = count
            while left:
                deliveries = await port.receive(max_count=batch, wait_s=1.0)
                await port.settle([Settlement(delivery, ACK) for delivery in deliveries])
                left -= len(deliveries)
        assert await bench.left_behind() == 0
    return watch.reading(count)


# Memory over very many messages.


def run_flat(count: int) -> Reading:
    """Resident memory while many messages pass through the memory gateway, few at a time."""
    return run_loop(_measure_flat(count))


async def _measure_flat(count: int) -> Reading:
    bench = BenchmarkApp(MemoryGateway())
    watch = Stopwatch()
    async with bench.app:
        await bench.make_queue()
        with watch.span("send and pump"):
            async with bench.pumping():
                samples = await _pass_through(bench, count)
        assert await bench.left_behind() == 0
    return attrs.evolve(watch.reading(count), rss_mib=tuple(samples))


async def _pass_through(bench: BenchmarkApp, count: int) -> list[float]:
    """Send and handle `count` messages; sample after each tenth of them."""
    samples: list[float] = []
    sent = 0
    while sent < count:
        step = min(_AT_ONCE, count - sent)
        await bench.post_in_batches(step)
        sent += step
        await bench.wait_until_handled(sent)
        if sent * _SAMPLES >= count * (len(samples) + 1):
            samples.append(_rss_mib())
    return samples


def _rss_mib() -> float:
    """Resident memory now; where the system does not say, its peak so far."""
    gc.collect()
    if _STATM.exists():
        return int(_STATM.read_text().split()[1]) * resource.getpagesize() / 2**20
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 2**10)


# What grows: messages, subscriptions, or messages in flight.


@attrs.frozen(kw_only=True)
class _Size:
    """What grows: subscriptions, each with at most `queued` messages; handlers at once of each."""

    subscriptions: int = 1
    queued: int = 1000
    concurrency: int = 10
    is_held: bool = False
    """Whether handlers wait for one another, so that as many as may are in flight."""


class _Gate:
    """Lets handlers go on only when as many are running as may: so many are in flight then."""

    def __init__(self, concurrency: int) -> None:
        self._concurrency = concurrency
        self._inside = 0
        self._let_go = 0
        self._open = asyncio.get_running_loop().create_future()
        self.expected = 0
        """How many are to come here since the beginning: the last ones wait for nobody else."""
        self.peak = 0

    async def wait(self) -> None:
        self._inside += 1
        gate = self._open
        if self._inside == min(self._concurrency, self.expected - self._let_go):
            self.peak = max(self.peak, self._inside)
            self._let_go += self._inside
            self._inside = 0
            loop = asyncio.get_running_loop()
            self._open = loop.create_future()
            loop.call_soon(gate.set_result, None)
        await gate


class _GrowthApp:
    """An app with several queues, whose handler counts, and can stay in flight."""

    def __init__(self, size: _Size) -> None:
        # A benchmark leaves no data folder behind.
        self.app = App(MemoryGateway(), spill=MemorySpill())
        self.gate = _Gate(size.concurrency)
        self._at_once = size.subscriptions * size.queued
        self._queues = [f"ticks-{number}" for number in range(size.subscriptions)]
        self._handled = self._milestone = 0
        self._reached = asyncio.Event()
        self.app.register(Tick, self._handle_held if size.is_held else self._handle)
        for queue in self._queues:
            self.app.subscribe(
                Subscription(queue=queue, request=Tick, concurrency=size.concurrency)
            )

    async def _handle(self, request: Tick) -> None:
        self._handled += 1
        if self._handled == self._milestone:
            self._reached.set()

    async def _handle_held(self, request: Tick) -> None:
        await self.gate.wait()
        await self._handle(request)

    async def pass_through(self, count: int) -> None:
        """Send and handle `count`, each queue in its turn."""
        for sent in range(0, count, self._at_once):
            self._milestone = self.gate.expected = min(sent + self._at_once, count)
            self._reached.clear()
            for at in range(sent, self._milestone, POST_BATCH):
                numbers = range(at, min(at + POST_BATCH, self._milestone))
                queue = self._queues[at // POST_BATCH % len(self._queues)]
                await self.app.post_all([Tick(number) for number in numbers], queue=queue)
            if self._handled < self._milestone:
                await self._reached.wait()


async def _measure_growth(count: int, size: _Size) -> Reading:
    app = _GrowthApp(size)
    watch = Stopwatch()
    async with app.app:
        with watch.span("send and pump"):
            async with app.app.pumping() as dispatcher:
                await app.pass_through(count)
    processed = sum(each.stats.processed for each in dispatcher.performers)
    assert processed == count, f"{processed} of {count} messages were acked"
    figures = {"peak_in_flight_count": float(app.gate.peak)} if size.is_held else {}
    return attrs.evolve(watch.reading(count), figures=figures)


def run_growth(count: int, **size: Any) -> Reading:
    """`size` is `_Size`'s: the queues stay short, so that nothing grows but what it says."""
    return run_loop(_measure_growth(count, _Size(**size)))
