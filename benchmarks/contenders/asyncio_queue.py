"""A bare asyncio.Queue and one task: what no framework at all costs."""

from __future__ import annotations

import asyncio

from pump import event_loop

from ..reading import Reading, Stopwatch


async def _handle(number: int) -> None:
    pass


async def _consume(queue: asyncio.Queue[int]) -> None:
    while True:
        number = await queue.get()
        await _handle(number)
        queue.task_done()


async def _measure(count: int) -> Reading:
    queue: asyncio.Queue[int] = asyncio.Queue()
    watch = Stopwatch()
    with watch.span("send and handle"):
        consuming = asyncio.create_task(_consume(queue))
        for number in range(count):
            await queue.put(number)
        await queue.join()
    consuming.cancel()
    return watch.reading(count)


def run(count: int) -> Reading:
    return event_loop.run(_measure(count))
