"""The memory gateway's ports without a pump: receive a batch, ack it, and again.

It asks for as many at once as the gateway gives, which makes the pump's overhead look larger
than a loop with the pump's own window would.
"""

from __future__ import annotations

from gateways.memory import MemoryGateway
from pump import event_loop
from pump.outcome import ACK, Settlement

from ..reading import Reading, Stopwatch
from .pump_app import SUBSCRIPTION, BenchmarkApp


async def _measure(count: int) -> Reading:
    gateway = MemoryGateway()
    bench = BenchmarkApp(gateway)
    watch = Stopwatch()
    async with bench.app:
        await bench.make_queue()
        await bench.post_in_batches(count)
        port = gateway.consumer(SUBSCRIPTION)
        batch = gateway.capabilities.receive_batch
        with watch.span("pump"):
            left = count
            while left:
                deliveries = await port.receive(max_count=batch, wait_s=1.0)
                await port.settle([Settlement(delivery, ACK) for delivery in deliveries])
                left -= len(deliveries)
        assert await bench.left_behind() == 0
    return watch.reading(count)


def run(count: int) -> Reading:
    return event_loop.run(_measure(count))
