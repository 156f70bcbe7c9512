"""taskiq-aio-sqs: batches of ten, and the hundred tasks at once that are taskiq's default."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from taskiq.api import run_receiver_task
from taskiq_aio_sqs import SQSBroker

from pump import event_loop

from ..reading import Reading
from ..sqs_rig import QUEUE, REGION, Rig, sqs_rig

_SENT_AT_ONCE = 100


async def _measure(rig: Rig, count: int) -> Reading:
    handled = 0
    broker = SQSBroker(
        QUEUE,
        endpoint_url=rig.endpoint,
        region_name=REGION,
        max_number_of_messages=10,
        wait_time_seconds=20,
    )

    @broker.task
    async def handle(number: int) -> None:
        nonlocal handled
        handled += 1

    await broker.startup()
    for start in range(0, count, _SENT_AT_ONCE):
        numbers = range(start, min(start + _SENT_AT_ONCE, count))
        await asyncio.gather(*(handle.kiq(number) for number in numbers))
    receiving = asyncio.create_task(run_receiver_task(broker))
    reading = await asyncio.to_thread(rig.measure, count)
    receiving.cancel()
    with suppress(asyncio.CancelledError):
        await receiving
    await broker.shutdown()
    assert handled == count
    return reading


def run(count: int, *, latency_ms: float = 0.0) -> Reading:
    with sqs_rig(latency_ms=latency_ms) as rig:
        return event_loop.run(_measure(rig, count))
