"""FastStream on JetStream: a durable pull consumer of a work queue on the disk."""

from __future__ import annotations

import asyncio

from faststream.nats import JStream, NatsBroker, PullSub
from nats.js.api import RetentionPolicy

from pump import event_loop

from ..brokers.rig import QUEUE, Tally, nats_broker
from ..reading import Reading

_STREAM = "benchmark"
_BATCH = 100
_AT_ONCE = 500


async def _measure(url: str, count: int) -> Reading:
    tally = Tally(count)
    broker = NatsBroker(url, logger=None)
    stream = JStream(_STREAM, subjects=[QUEUE], retention=RetentionPolicy.WORK_QUEUE)

    @broker.subscriber(QUEUE, stream=stream, durable="worker", pull_sub=PullSub(batch_size=_BATCH))
    async def handle(number: int) -> None:
        tally.add()

    async with broker:
        await _send(broker, count)
        await broker.start()
        await tally.wait_async()
    await _require_empty(url)
    return tally.reading()


async def _send(broker: NatsBroker, count: int) -> None:
    connection = broker._connection
    assert connection is not None
    jetstream = connection.jetstream()
    await jetstream.add_stream(name=_STREAM, subjects=[QUEUE], retention=RetentionPolicy.WORK_QUEUE)
    for start in range(0, count, _AT_ONCE):
        numbers = range(start, min(start + _AT_ONCE, count))
        sends = (broker.publish(number, QUEUE, stream=_STREAM) for number in numbers)
        await asyncio.gather(*sends)


async def _require_empty(url: str) -> None:
    """An ack of a work queue removes its message."""
    import nats

    connection = await nats.connect(url)
    try:
        state = (await connection.jetstream().stream_info(_STREAM)).state
        assert not state.messages, f"{state.messages} messages were not acked"
    finally:
        await connection.close()


def run(count: int) -> Reading:
    with nats_broker() as url:
        return event_loop.run(_measure(url, count))
