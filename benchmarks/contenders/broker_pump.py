"""Pumphouse on a real broker, as anyone would write it: a URL, a subscription, a handler."""

from __future__ import annotations

from pump import App, event_loop
from pump.stores.spill import MemorySpill
from pump.subscription import MakeChannels

from ..brokers.rig import Tally, nats_broker, rabbitmq_broker
from ..reading import Reading
from .pump_app import POST_BATCH, SUBSCRIPTION, Tick

_BROKERS = {"rabbitmq": rabbitmq_broker, "nats": nats_broker}


async def _measure(url: str, count: int) -> Reading:
    tally = Tally(count)
    # A benchmark leaves no data folder behind.
    app = App(url, spill=MemorySpill())

    async def handle(request: Tick) -> None:
        tally.add()

    app.register(Tick, handle)
    app.subscribe(SUBSCRIPTION)
    async with app:
        for spec in SUBSCRIPTION.queue_specs():
            await app.admin.ensure(spec, MakeChannels.CREATE)
        for start in range(0, count, POST_BATCH):
            numbers = range(start, min(start + POST_BATCH, count))
            await app.post_all([Tick(number) for number in numbers])
        async with app.pumping():
            await tally.wait_async()
        left = await app.admin.stats(SUBSCRIPTION.queue)
        assert not left.visible + left.in_flight, f"{left} were not acked"
    return tally.reading()


def run(count: int, *, broker: str) -> Reading:
    with _BROKERS[broker]() as url:
        return event_loop.run(_measure(url, count))
