"""A room: one queue's state, those who wait for its messages, and its one timer."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from math import inf

from pump.clock import Clock, Timer

from .state import QueueState

# What falls due within this is due now, so that sums of floats never make a test, or a timer,
# miss the moment by a rounding error. Far below any lease that makes sense.
TICK_S = 1e-6


class Room:
    """Wakes waiting receives when something may have become available; never polls.

    The timer is armed only while somebody waits, or while a lease could end in a redrive.
    """

    def __init__(self, state: QueueState, clock: Clock, on_due: Callable[[Room], object]) -> None:
        self.state = state
        self._clock = clock
        self._on_due = on_due
        self._waiters: deque[asyncio.Future[bool]] = deque()
        self._watchers: deque[asyncio.Future[bool]] = deque()
        """Those who wait for something that only they can use: a session, or a message of it."""
        self._timer: Timer | None = None
        self._timer_due_s = inf

    @property
    def name(self) -> str:
        """The queue's name."""
        return self.state.settings.name

    async def wait(self, wait_s: float) -> bool:
        """Wait for a reason to look again; False when `wait_s` have passed without one."""
        woken: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        try:
            return await self._wait_among(self._waiters, woken, wait_s)
        except asyncio.CancelledError:
            # Woken, then cancelled before it could look: the reason is another waiter's now.
            if woken.done() and not woken.cancelled():
                self.stir()
            raise

    async def watch(self, wait_s: float) -> bool:
        """As `wait`, for what concerns a session: every change is a reason."""
        woken: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        return await self._wait_among(self._watchers, woken, wait_s)

    def stir(self) -> None:
        """Tell the room that its state has changed.

        Wakes one waiter; when that one has taken its share and left some, it stirs again. Wakes
        all watchers: which of them it concerns, only they know.
        """
        if self._watchers:
            self._wake_watchers()
        if self._waiters and self.state.line.has_candidates():
            self._wake_one()
        self._arm()

    def close(self) -> None:
        """Send every waiter away and disarm the timer."""
        self._wake_watchers()
        while self._waiters:
            self._wake_one()
        self._disarm()

    async def _wait_among(
        self, waiters: deque[asyncio.Future[bool]], woken: asyncio.Future[bool], wait_s: float
    ) -> bool:
        timer = self._clock.call_later(wait_s, lambda: _wake(woken, False))
        waiters.append(woken)
        self._arm()
        try:
            return await woken
        finally:
            timer.cancel()
            if woken in waiters:
                waiters.remove(woken)

    def _wake_watchers(self) -> None:
        watchers = list(self._watchers)
        self._watchers.clear()
        for woken in watchers:
            _wake(woken, True)

    def _wake_one(self) -> None:
        while self._waiters:
            if _wake(self._waiters.popleft(), True):
                return

    def _arm(self) -> None:
        state = self.state
        can_redrive = state.settings.max_receive_count is not None and state.leases
        if not self._waiters and not self._watchers and not can_redrive:
            return
        due_s = state.agenda.next_due_s()
        if due_s >= self._timer_due_s:
            return
        self._disarm()
        self._timer_due_s = due_s
        delay_s = due_s - self._clock.now_s() - TICK_S / 2
        self._timer = self._clock.call_later(max(0.0, delay_s), self._ring)

    def _ring(self) -> None:
        self._timer = None
        self._timer_due_s = inf
        self._on_due(self)
        self.stir()

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._timer_due_s = inf


def _wake(woken: asyncio.Future[bool], result: bool) -> bool:
    if woken.done():
        return False
    woken.set_result(result)
    return True
