"""Life of messages on S3: all are sent, then all are consumed, and every request is counted."""

from __future__ import annotations

import asyncio
import gc
import time
from collections import Counter

import attrs

from pump import event_loop

from ..reading import Reading, Span, Stopwatch
from .designs import Place, sending
from .fleet import fleet
from .leftovers import unfinished
from .rig import Rig, s3_rig

_SEND_BATCH = 100
"""Messages a call, as in the other groups."""
_SENDERS = 10
"""Calls under way at once: nobody who is 60 ms away sends one after the other."""


def measure_life(count: int, place: Place, latency_ms: float) -> Reading:
    """Send `count`, then start the clock anew and consume them; nothing may be left."""
    with s3_rig() as rig:
        here = attrs.evolve(place, endpoint=rig.endpoint)
        sent = event_loop.run(_send(rig, count, here, latency_ms))
        sent_calls = Counter(rig.counts())
        consumed = _consume(rig, count, here, latency_ms)
        calls = sent_calls + Counter(consumed.calls)
        left = unfinished(rig.sizes())
    assert not left, f"there is more to do: {left[:3]}, {len(left)} in all"
    return attrs.evolve(
        consumed, spans={**sent.spans, **consumed.spans}, calls=calls, figures=_parts(sent_calls)
    )


async def _send(rig: Rig, count: int, place: Place, latency_ms: float) -> Reading:
    starts = iter(range(0, count, _SEND_BATCH))
    watch = Stopwatch()
    async with sending(place) as send:

        async def work() -> None:
            for start in starts:
                await send(range(start, min(start + _SEND_BATCH, count)))

        await asyncio.to_thread(rig.start, latency_ms)
        with watch.span("send"):
            async with asyncio.TaskGroup() as group:
                for _ in range(_SENDERS):
                    group.create_task(work())
    return watch.reading(count)


def _consume(rig: Rig, count: int, place: Place, latency_ms: float) -> Reading:
    with fleet(place) as consumers:
        gc.collect()
        rig.start(latency_ms)
        wall_s, cpu_s = time.perf_counter(), consumers.cpu_s()
        consumers.go()
        consumers.wait_until_done(count)
        span = Span(wall_s=time.perf_counter() - wall_s, cpu_s=consumers.cpu_s() - cpu_s)
        calls = rig.counts()
        assert (done := consumers.end()) == count, f"{done} of {count} messages were acked"
    return Reading(messages=count, spans={"consume": span}, calls=calls)


def _parts(sent: Counter[str]) -> dict[str, float]:
    return {f"sent_{kind}_count": float(number) for kind, number in sent.items()}
