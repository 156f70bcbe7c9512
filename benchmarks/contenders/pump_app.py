"""The Pumphouse app that is measured: one command, a handler that only counts, all defaults."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import attrs

from pump import App, Command, Subscription
from pump.dispatcher import Dispatcher
from pump.ports import Gateway
from pump.stores.spill import MemorySpill
from pump.subscription import MakeChannels

from ..reading import Reading, Stopwatch

POST_BATCH = 100
"""Requests a call of `post_all`: the group size of the raw SQLite contender."""


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


async def measure(gateway: Gateway, count: int, *, is_batched: bool, **options: Any) -> Reading:
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
