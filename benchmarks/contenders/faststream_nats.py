"""FastStream's in-memory test broker: a publish runs its subscriber before it returns."""

from __future__ import annotations

from faststream.nats import NatsBroker, TestNatsBroker

from pump import event_loop

from ..reading import Reading, Stopwatch


async def _measure(count: int) -> Reading:
    broker = NatsBroker()

    @broker.subscriber("ticks")
    async def handle(number: int) -> None:
        pass

    watch = Stopwatch()
    async with TestNatsBroker(broker):
        with watch.span("send and handle"):
            for number in range(count):
                await broker.publish(number, "ticks")
    return watch.reading(count)


def run(count: int) -> Reading:
    return event_loop.run(_measure(count))
