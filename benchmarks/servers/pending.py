"""Pending: a server that holds very many messages. What it weighs, how it serves, how it starts.

Two queues of the same server are received from in turn, one with few messages and one with very
many; so whatever else goes on hits both alike. Each message received is deleted and another one
sent, so that the numbers stay.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial

import attrs
import uvloop

from ..reading import Reading, Span
from .calls import BATCH, Calls, check_batch, messages_in
from .crew import Crew, Signals
from .latency import percentiles_ms
from .running import Server
from .target import new_queue, pending_in
from .wire import Wire

FEW = 1_000
_MAX_SAMPLES = 1_000
_PROCESSES = 2
_CONNECTIONS = 8

Start = Callable[[], AbstractContextManager[Server]]


def run_pending(start: Start, count: int) -> Reading:
    """Fill a server, measure it, and start it once more with what is stored."""
    with start() as server:
        few, many = new_queue(server.endpoint), new_queue(server.endpoint)
        _fill(server, few, FEW)
        span = _fill(server, many, count)
        rss_mib = server.rss_mib()
        sample_count = max(10, min(_MAX_SAMPLES, count // 100))
        few_s, many_s = uvloop.run(_receive_in_turn(few, many, sample_count))
    started_s = time.perf_counter()
    with start() as server:
        left = pending_in(Calls(server.endpoint, many.queue_url))
        started_s = time.perf_counter() - started_s
        assert left == count, f"{left} of {count} messages are there after a start"
        restarted_rss_mib = server.rss_mib()
    return Reading(
        messages=count,
        spans={"fill": span},
        rss_mib=(rss_mib, restarted_rss_mib),
        figures={
            "start_s": started_s,
            **percentiles_ms("few", few_s),
            **percentiles_ms("many", many_s),
        },
    )


def _fill(server: Server, calls: Calls, count: int) -> Span:
    with Crew([partial(_send, calls, count, at) for at in range(_PROCESSES)]) as crew:
        wall_s, cpu_s = time.perf_counter(), server.cpu_s()
        for _ in range(_PROCESSES):
            crew.wait_until_finished()
        span = Span(wall_s=time.perf_counter() - wall_s, cpu_s=server.cpu_s() - cpu_s)
    assert pending_in(calls) == count
    return span


async def _send(calls: Calls, count: int, process: int, signals: Signals) -> None:
    # Made when needed: a million requests would take more memory than the server.
    starts = iter(range(process * BATCH, count, _PROCESSES * BATCH))

    async def send(wire: Wire) -> None:
        for start in starts:
            batch = range(start, min(start + BATCH, count))
            check_batch(await wire.call(calls.send_batch(batch)), len(batch))

    signals.ready()
    await asyncio.gather(*(send(Wire(calls.endpoint)) for _ in range(_CONNECTIONS)))
    signals.finish()


@attrs.define
class _Sampler:
    """Receives one message at a time and puts another one in its place."""

    calls: Calls
    wire: Wire
    times_s: list[float] = attrs.field(factory=list)

    async def sample(self) -> None:
        started_s = time.perf_counter()
        answer = await self.wire.call(self.calls.receive(1, wait_s=0))
        self.times_s.append(time.perf_counter() - started_s)
        [message] = messages_in(answer)
        check_batch(await self.wire.call(self.calls.delete_batch([message])), 1)
        await self.wire.call(self.calls.send_one(message.number))


async def _receive_in_turn(
    few: Calls, many: Calls, sample_count: int
) -> tuple[list[float], list[float]]:
    wire = Wire(few.endpoint)
    samplers = [_Sampler(few, wire), _Sampler(many, wire)]
    for _ in range(sample_count):
        for sampler in samplers:
            await sampler.sample()
    wire.close()
    return samplers[0].times_s, samplers[1].times_s
