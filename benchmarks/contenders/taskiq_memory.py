"""taskiq's InMemoryBroker: tasks start as they are kicked; there is nothing to ack."""

from __future__ import annotations

import asyncio

from taskiq import InMemoryBroker

from ..reading import Reading, Stopwatch


async def _measure(count: int) -> Reading:
    broker = InMemoryBroker()

    @broker.task
    async def handle(number: int) -> None:
        pass

    await broker.startup()
    watch = Stopwatch()
    with watch.span("send and handle"):
        for number in range(count):
            await handle.kiq(number)
        await broker.wait_all()
    await broker.shutdown()
    return watch.reading(count)


def run(count: int) -> Reading:
    return asyncio.run(_measure(count))
