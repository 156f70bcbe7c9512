"""A clock for real servers that can travel: time passes, and `advance` skips the rest of it."""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Callable, Collection
from typing import Any

import attrs

from ..clock import SYSTEM_CLOCK, Clock, Timer

QUANTUM_S = 0.5
"""Timers that are due within this much of one another fire together."""
REST_S = 0.02
"""How long nothing must be under way for a program to be at rest."""
REST_LIMIT_S = 30.0
"""How long a program may take to come to rest before time goes on all the same."""


@attrs.define(eq=False)
class _TravellingTimer:
    due_s: float
    callback: Callable[[], object]
    handle: asyncio.TimerHandle | None = None
    is_cancelled: bool = False

    def cancel(self) -> None:
        self.is_cancelled = True
        if self.handle is not None:
            self.handle.cancel()


class TravellingClock(Clock):
    """The machine's time and what was skipped of it, for a gateway and its server together.

    `carry` moves the server's time on by so many seconds and returns when that is done; it is
    called on the event loop, which stands still meanwhile: nothing arrives between the server's
    jump and ours. Time is skipped only while nothing is under way that it could overtake, which
    `is_busy` tells; and `looks` are the requests that wait at the server: each ends before more is
    skipped, so that none misses what has become due.
    """

    def __init__(
        self,
        carry: Callable[[float], object],
        *,
        ahead_s: float = 0.0,
        is_busy: Callable[[], bool] = lambda: False,
        looks: Callable[[], Collection[asyncio.Task[Any]]] = list,
    ) -> None:
        self._carry = carry
        self._ahead_s = ahead_s
        self._is_busy = is_busy
        self._looks = looks
        self._looking: set[asyncio.Task[Any]] = set()
        self._timers: list[tuple[float, int, _TravellingTimer]] = []
        self._order = itertools.count()

    def now_s(self) -> float:
        return SYSTEM_CLOCK.now_s() + self._ahead_s

    def time_s(self) -> float:
        return SYSTEM_CLOCK.time_s() + self._ahead_s

    def chance(self) -> float:
        return SYSTEM_CLOCK.chance()

    def call_later(self, delay_s: float, callback: Callable[[], object]) -> Timer:
        """Run `callback` when the time has come, or was skipped."""
        timer = _TravellingTimer(self.now_s() + max(delay_s, 0.0), callback)
        heapq.heappush(self._timers, (timer.due_s, next(self._order), timer))
        self._schedule(timer)
        return timer

    async def advance(self, seconds: float) -> None:
        """Let that much time pass, timer by timer, in no more real time than the work takes."""
        end_s = self.now_s() + seconds
        await self.settle()
        while (left_s := end_s - self.now_s()) > 0:
            self._skip(min(left_s, max(self._next_due_in_s(left_s), QUANTUM_S)))
            await self.settle()

    async def settle(self) -> None:
        """Let everything that can happen now happen."""
        limit_s = SYSTEM_CLOCK.now_s() + REST_LIMIT_S
        quiet_s = 0.0
        while quiet_s < REST_S and SYSTEM_CLOCK.now_s() < limit_s:
            await SYSTEM_CLOCK.sleep(REST_S / 4)
            self._looking = {each for each in self._looking if not each.done()}
            quiet_s = 0.0 if self._looking or self._is_busy() else quiet_s + REST_S / 4

    def _skip(self, seconds: float) -> None:
        self._carry(seconds)
        self._ahead_s += seconds
        self._looking |= set(self._looks())
        now_s = self.now_s()
        while self._timers and self._timers[0][0] <= now_s:
            timer = heapq.heappop(self._timers)[2]
            if timer.handle is not None:
                timer.handle.cancel()
            if not timer.is_cancelled:
                timer.handle = None
                asyncio.get_running_loop().call_soon(self._fire, timer)
        for _, _, timer in self._timers:
            self._schedule(timer)

    def _next_due_in_s(self, default_s: float) -> float:
        while self._timers and self._timers[0][2].is_cancelled:
            heapq.heappop(self._timers)
        return self._timers[0][0] - self.now_s() if self._timers else default_s

    def _schedule(self, timer: _TravellingTimer) -> None:
        if timer.handle is not None:
            timer.handle.cancel()
        if not timer.is_cancelled:
            delay_s = max(timer.due_s - self.now_s(), 0.0)
            timer.handle = asyncio.get_running_loop().call_later(delay_s, self._fire, timer)

    def _fire(self, timer: _TravellingTimer) -> None:
        if timer.is_cancelled:
            return
        timer.is_cancelled = True
        timer.callback()
