"""Designs: how each of the compared sends and consumes, behind one face."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

import attrs

from .app import Tick, make_app

NAIVE = "naive"
_SENDERS_CONNECTIONS = 200

Send = Callable[[Sequence[int]], Awaitable[None]]
Done = Callable[[], int]


@attrs.frozen(kw_only=True)
class Place:
    """What a process is told: where, how many consumers, and which of how many processes it is."""

    endpoint: str
    design: str
    consumers: int = 1
    process: int = 0
    processes: int = 1


@asynccontextmanager
async def sending(place: Place) -> AsyncIterator[Send]:
    """An open sender; the queue is there."""
    if place.design == NAIVE:
        from .naive import NaiveQueue, naive_client

        async with naive_client(place.endpoint, _SENDERS_CONNECTIONS) as client:
            yield NaiveQueue(client).send
        return
    app = make_app(place.endpoint, place.design)
    async with app:

        async def send(numbers: Sequence[int]) -> None:
            await app.post_all([Tick(number) for number in numbers])

        yield send


@asynccontextmanager
async def consuming(place: Place, go: Callable[[], Awaitable[None]]) -> AsyncIterator[Done]:
    """Consumers that are open, wait for `go`, and work inside the body; how much they have done."""
    if place.design == NAIVE:
        async with _naive_consumers(place, go) as done:
            yield done
        return
    app = make_app(place.endpoint, place.design, place.consumers)
    async with app:
        await go()
        dispatcher = app.dispatcher()
        async with asyncio.TaskGroup() as group:
            group.create_task(dispatcher.run())
            yield lambda: sum(each.stats.processed for each in dispatcher.performers)
            dispatcher.drain()


@asynccontextmanager
async def _naive_consumers(place: Place, go: Callable[[], Awaitable[None]]) -> AsyncIterator[Done]:
    from .naive import NaiveQueue, naive_client

    async with naive_client(place.endpoint, place.consumers + 1) as client:
        queue = NaiveQueue(client, share=place.process, shares=place.processes)
        await go()
        async with asyncio.TaskGroup() as group:
            for _ in range(place.consumers):
                group.create_task(queue.consume())
            yield lambda: queue.done_count
            queue.is_stopped = True
