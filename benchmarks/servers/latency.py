"""Latency: messages sent one by one at a steady rate, whether or not the server keeps up.

A send that is due goes out over a connection that is free, or a new one; it never waits for the
answers to those before. One more connection polls long, and what it gets is deleted over others.
Times are counted from the moment a request is written: if this client itself is late, that is
not the server's.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from math import ceil
from statistics import median

import attrs
import uvloop

from ..reading import Reading, Span
from .calls import Calls, Message, check_batch, messages_in
from .running import Server
from .target import new_queue, pending_in
from .wire import Wire

_RUNS = 3
_MAX_WIRES = 400
"""So many requests under way mean that the server does not manage the rate."""


class _Wires:
    """Connections that are opened when all others are in use."""

    def __init__(self, endpoint: str) -> None:
        self._endpoint = endpoint
        self._free: list[Wire] = []
        self._count = 0

    async def call(self, request: bytes) -> bytes:
        wire = self._free.pop() if self._free else self._open()
        answer = await wire.call(request)
        self._free.append(wire)
        return answer

    def close(self) -> None:
        for wire in self._free:
            wire.close()

    def _open(self) -> Wire:
        self._count += 1
        if self._count > _MAX_WIRES:
            raise RuntimeError(f"the server is {_MAX_WIRES} requests behind: ask for less")
        return Wire(self._endpoint)


class _Steady:
    """One run at one rate."""

    def __init__(self, calls: Calls, count: int, rate: float) -> None:
        self._calls = calls
        self._count = count
        self._rate = rate
        self._wires = _Wires(calls.endpoint)
        self._written_s = [0.0] * count
        self.sending_s: list[float] = []
        self.receiving_s: list[float] = []

    async def run(self) -> None:
        requests = [self._calls.send_one(number) for number in range(self._count)]
        async with asyncio.TaskGroup() as group:
            group.create_task(self._receive(group))
            started_s = time.perf_counter()
            for number, request in enumerate(requests):
                late_s = time.perf_counter() - (started_s + number / self._rate)
                if late_s < 0:
                    await asyncio.sleep(-late_s)
                group.create_task(self._send(number, request))
        self._wires.close()

    async def _send(self, number: int, request: bytes) -> None:
        self._written_s[number] = time.perf_counter()
        await self._wires.call(request)
        self.sending_s.append(time.perf_counter() - self._written_s[number])

    async def _receive(self, group: asyncio.TaskGroup) -> None:
        wire, request = Wire(self._calls.endpoint), self._calls.receive()
        seen: set[int] = set()
        while len(seen) < self._count:
            messages = messages_in(await wire.call(request))
            now_s = time.perf_counter()
            for number in {message.number for message in messages} - seen:
                seen.add(number)
                self.receiving_s.append(now_s - self._written_s[number])
            if messages:
                group.create_task(self._delete(messages))
        wire.close()

    async def _delete(self, messages: Sequence[Message]) -> None:
        check_batch(await self._wires.call(self._calls.delete_batch(messages)), len(messages))


def run_latency(server: Server, count: int, *, rate: float) -> Reading:
    """Send `count` messages at `rate` a second, a few times, and tell the medians: a machine that
    stands still for a tenth of a second spoils one of the runs, and says nothing about the server.
    The first time does not count: a server that has just started is slower for a few seconds.
    RuntimeError when the server cannot follow.
    """
    _run_once(server, count, rate)
    runs = [_run_once(server, count, rate) for _ in range(_RUNS)]
    names = runs[0].figures
    figures = {name: median(each.figures[name] for each in runs) for name in names}
    return attrs.evolve(sorted(runs, key=lambda each: each.cpu_s)[_RUNS // 2], figures=figures)


def _run_once(server: Server, count: int, rate: float) -> Reading:
    calls = new_queue(server.endpoint)
    steady = _Steady(calls, count, rate)
    wall_s, cpu_s = time.perf_counter(), server.cpu_s()
    uvloop.run(steady.run())
    span = Span(wall_s=time.perf_counter() - wall_s, cpu_s=server.cpu_s() - cpu_s)
    assert pending_in(calls) == 0
    return Reading(
        messages=count,
        spans={"steady": span},
        figures={
            "rate": rate,
            **percentiles_ms("sending", steady.sending_s),
            **percentiles_ms("receiving", steady.receiving_s),
        },
    )


def percentiles_ms(name: str, values_s: Sequence[float]) -> dict[str, float]:
    """The median and the 99th percentile, as figures of that name."""
    ordered = sorted(values_s)
    return {
        f"{name}_p{percent}_ms": ordered[ceil(len(ordered) * percent / 100) - 1] * 1000
        for percent in (50, 99)
    }
