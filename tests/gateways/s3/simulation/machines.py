"""Machines and the processes on them: clocks that are off, pauses, deaths."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from random import Random
from typing import Any

import attrs

from gateways.s3.store.objects import DRIFT, ServerTime
from pump.clock import Clock

from .loop import VirtualLoop, owner


class Machine:
    """A monotonic clock with a rate of its own, and a wall clock that says anything."""

    def __init__(self, loop: VirtualLoop, rng: Random) -> None:
        self._loop = loop
        self.rate = 1.0 + rng.choice((0.0, rng.uniform(-0.9, 0.9), -0.9, 0.9)) * DRIFT
        self.booted_s = loop.now_s - rng.uniform(0.0, 100_000.0)
        self.wall_lead_s = rng.choice((0.0, rng.uniform(-2.0, 2.0), rng.uniform(-9_000, 9_000)))

    def local_s(self) -> float:
        return (self._loop.now_s - self.booted_s) * self.rate

    def wall_s(self) -> float:
        return self._loop.now_s + self.wall_lead_s

    def true_s(self, local_s: float) -> float:
        """The true time at which the clock shows this."""
        return self.booted_s + local_s / self.rate


def _ignore(_: object) -> None:
    pass


@attrs.define(eq=False)
class Process:
    """A process: what it does stops while it is paused, and for good when it dies."""

    name: str
    loop: VirtualLoop
    machine: Machine
    rng: Random
    time: ServerTime = attrs.field(init=False)
    clock: ProcessClock = attrs.field(init=False)
    is_alive: bool = True
    paused_until_s: float = 0.0
    doubts: int = 0
    """How many of its requests had an answer that does not say what became of them."""
    tasks: list[asyncio.Task[Any]] = attrs.field(factory=list)
    on_death: Callable[[Process], None] = _ignore
    on_end: Callable[[asyncio.Task[None]], None] = _ignore
    """Told of each task that has ended."""

    def __attrs_post_init__(self) -> None:
        self.time = ServerTime(self.machine.local_s)
        self.clock = ProcessClock(self)

    @property
    def is_paused(self) -> bool:
        return self.paused_until_s > self.loop.now_s

    def when_running(self, act: Callable[[], object]) -> None:
        """Do it now, or when the pause is over, or never when it has died."""
        if not self.is_alive:
            return
        if self.is_paused:
            self.loop.call_at(self.paused_until_s, self.when_running, act)
            return
        act()

    def start(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """Run it as a task of this process."""
        token = owner.set(self.tasks)
        try:
            task = self.loop.create_task(work, name=f"{self.name} {name}")
        finally:
            owner.reset(token)
        task.add_done_callback(self.on_end)
        return task

    def die(self) -> None:
        """At once: nothing that it does from here on reaches anybody."""
        if self.is_alive:
            self.is_alive = False
            self.on_death(self)
            for task in self.tasks:
                task.cancel()


class ProcessClock(Clock):
    """The clock that a process is given."""

    def __init__(self, process: Process) -> None:
        self._process = process

    def now_s(self) -> float:
        return self._process.machine.local_s()

    def time_s(self) -> float:
        return self._process.machine.wall_s()

    def chance(self) -> float:
        return self._process.rng.random()

    def call_later(self, delay_s: float, callback: Callable[[], object]) -> _Timer:
        process = self._process
        timer = _Timer(callback)
        wait_s = max(0.0, delay_s) / process.machine.rate
        process.loop.call_later(wait_s, partial(process.when_running, timer.fire))
        return timer


class _Timer:
    def __init__(self, callback: Callable[[], object]) -> None:
        self._callback: Callable[[], object] | None = callback

    def fire(self) -> None:
        if self._callback is not None:
            self._callback()

    def cancel(self) -> None:
        self._callback = None
