"""Resident memory while many messages pass through the memory gateway, few at a time."""

from __future__ import annotations

import gc
import resource
import sys
from pathlib import Path

import attrs

from gateways.memory import MemoryGateway
from pump import event_loop

from ..reading import Reading, Stopwatch
from .pump_app import BenchmarkApp

SAMPLES = 10
_AT_ONCE = 1000
"""The longest the queue gets: what grows must not be the queue."""
_STATM = Path("/proc/self/statm")


def rss_mib() -> float:
    """Resident memory now; where the system does not say, its peak so far."""
    gc.collect()
    if _STATM.exists():
        return int(_STATM.read_text().split()[1]) * resource.getpagesize() / 2**20
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 2**10)


async def _pass_through(bench: BenchmarkApp, count: int) -> list[float]:
    """Send and handle `count` messages; sample after each tenth of them."""
    samples: list[float] = []
    sent = 0
    while sent < count:
        step = min(_AT_ONCE, count - sent)
        await bench.post_in_batches(step)
        sent += step
        await bench.wait_until_handled(sent)
        if sent * SAMPLES >= count * (len(samples) + 1):
            samples.append(rss_mib())
    return samples


async def _measure(count: int) -> Reading:
    bench = BenchmarkApp(MemoryGateway())
    watch = Stopwatch()
    async with bench.app:
        await bench.make_queue()
        with watch.span("send and pump"):
            async with bench.pumping():
                samples = await _pass_through(bench, count)
        assert await bench.left_behind() == 0
    return attrs.evolve(watch.reading(count), rss_mib=tuple(samples))


def run(count: int) -> Reading:
    return event_loop.run(_measure(count))
