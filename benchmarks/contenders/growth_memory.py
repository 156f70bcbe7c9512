"""Pumphouse on the memory gateway: many messages, many subscriptions, or many in flight at once.

The queues stay short, so that what is measured grows with nothing but what the options say.
"""

from __future__ import annotations

import asyncio
from typing import Any

import attrs

from gateways.memory import MemoryGateway
from pump import App, Subscription, event_loop
from pump.stores.spill import MemorySpill

from ..reading import Reading, Stopwatch
from .pump_app import POST_BATCH, Tick


@attrs.frozen(kw_only=True)
class Size:
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


class _Crowd:
    """An app with several queues, whose handler counts, and stays in flight if it is told to."""

    def __init__(self, size: Size) -> None:
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


async def _measure(count: int, size: Size) -> Reading:
    crowd = _Crowd(size)
    watch = Stopwatch()
    async with crowd.app:
        with watch.span("send and pump"):
            async with crowd.app.pumping() as dispatcher:
                await crowd.pass_through(count)
    processed = sum(each.stats.processed for each in dispatcher.performers)
    assert processed == count, f"{processed} of {count} messages were acked"
    figures = {"peak_in_flight_count": float(crowd.gate.peak)} if size.is_held else {}
    return attrs.evolve(watch.reading(count), figures=figures)


def run(count: int, **size: Any) -> Reading:
    return event_loop.run(_measure(count, Size(**size)))
