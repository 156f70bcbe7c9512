"""FastStream on RabbitMQ: a durable classic queue, a hundred messages ahead, acks by default."""

from __future__ import annotations

import asyncio

from faststream.rabbit import Channel, RabbitBroker, RabbitQueue

from pump import event_loop

from ..brokers.rig import QUEUE, Tally, rabbitmq_broker, require_empty
from ..reading import Reading

_PREFETCH = 100
_AT_ONCE = 500


async def _measure(url: str, count: int) -> Reading:
    tally = Tally(count)
    # Without a logger it writes no line for each message; ours writes none either by default.
    broker = RabbitBroker(url, logger=None, default_channel=Channel(prefetch_count=_PREFETCH))
    queue = RabbitQueue(QUEUE, durable=True)

    @broker.subscriber(queue)
    async def handle(number: int) -> None:
        tally.add()

    async with broker:
        await broker.declare_queue(queue)
        for start in range(0, count, _AT_ONCE):
            numbers = range(start, min(start + _AT_ONCE, count))
            sends = (broker.publish(number, queue, persist=True) for number in numbers)
            await asyncio.gather(*sends)
        await broker.start()
        await tally.wait_async()
    return tally.reading()


def run(count: int) -> Reading:
    with rabbitmq_broker() as url:
        reading = event_loop.run(_measure(url, count))
        require_empty(url)
    return reading
