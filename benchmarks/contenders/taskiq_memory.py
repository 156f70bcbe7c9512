"""taskiq's InMemoryBroker: tasks start as they are kicked; there is nothing to ack."""

from __future__ import annotations

from taskiq import InMemoryBroker

from pump import event_loop

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
    return event_loop.run(_measure(count))
