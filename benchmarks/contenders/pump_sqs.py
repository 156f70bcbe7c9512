"""Pumphouse on SQS, as anyone would write it: a URL, a subscription, a handler."""

from __future__ import annotations

import asyncio

from pump import App, Subscription, event_loop
from pump.stores.spill import MemorySpill

from ..reading import Reading
from ..sqs_rig import REGION, Rig, sqs_rig
from .pump_app import POST_BATCH, SUBSCRIPTION, Tick


async def measure(
    rig: Rig, count: int, transport: str, subscription: Subscription = SUBSCRIPTION
) -> Reading:
    """Post everything while it is held back, then pump until the last delete."""
    handled = 0
    # A benchmark leaves no data folder behind.
    app = App(f"sqs://{REGION}?endpoint={rig.endpoint}&transport={transport}", spill=MemorySpill())

    async def handle(request: Tick) -> None:
        nonlocal handled
        handled += 1

    app.register(Tick, handle)
    app.subscribe(subscription)
    async with app:
        for start in range(0, count, POST_BATCH):
            numbers = range(start, min(start + POST_BATCH, count))
            await app.post_all([Tick(number) for number in numbers])
        async with app.pumping():
            reading = await asyncio.to_thread(rig.measure, count)
    assert handled == count
    return reading


def run(count: int, *, transport: str = "aioboto3", latency_ms: float = 0.0) -> Reading:
    with sqs_rig(latency_ms=latency_ms) as rig:
        return event_loop.run(measure(rig, count, transport))
