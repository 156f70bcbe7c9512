"""Waiting: receives that found nothing sleep until there is a reason to look again.

One timer serves them all: for what is known to be due, and for a look at what others do, after a
pause that doubles while nothing is found. Sends and settlements of this process wake them at once.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from math import inf

from pump.clock import Clock, Timer

_FIRST_PAUSE_S = 0.1
_LEAST_PAUSE_S = 0.001
"""What is due by the store's clock may seem not quite due by ours, which may run slower."""


class Waiting:
    """Those who wait for messages of one queue.

    `look` finds out whether there are any; `due_in_s` says when something is due at the latest.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        poll_s: float,
        look: Callable[[], Awaitable[bool]],
        due_in_s: Callable[[], float],
        ready_count: Callable[[], int],
    ) -> None:
        self._clock = clock
        self._poll_s = poll_s
        self._look = look
        self._due_in_s = due_in_s
        self._ready_count = ready_count
        self._waiters: deque[asyncio.Future[bool]] = deque()
        self._pause_s = _FIRST_PAUSE_S
        self._timer: Timer | None = None
        self._timer_due_s = inf
        self._looking: asyncio.Task[None] | None = None
        self._is_closed = False

    @property
    def is_closed(self) -> bool:
        """Whether nobody waits any more."""
        return self._is_closed

    def __bool__(self) -> bool:
        return bool(self._waiters)

    async def wait(self, wait_s: float) -> bool:
        """Wait for a reason to try again; False when `wait_s` have passed without one. Raises
        what a look raised.
        """
        woken: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        timer = self._clock.call_later(wait_s, lambda: _resolve(woken, False))
        if not self._waiters:
            self._pause_s = min(_FIRST_PAUSE_S, self._poll_s)
        self._waiters.append(woken)
        self.arm()
        try:
            return await woken
        except asyncio.CancelledError:
            # Woken, then cancelled before it could try: the reason is another's now.
            if woken.done() and not woken.cancelled():
                self.stir()
            raise
        finally:
            timer.cancel()
            if woken in self._waiters:
                self._waiters.remove(woken)

    def stir(self) -> None:
        """Something may have become available: wake as many as there is something for."""
        count = self._ready_count() if self._waiters else 0
        while count > 0 and self._waiters:
            count -= _resolve(self._waiters.popleft(), True)
        self.arm()

    def arm(self) -> None:
        """Set the timer for the next reason to look."""
        if self._is_closed or self._is_busy:
            return
        delay_s = min(self._due_in_s(), self._pause_s if self._waiters else inf)
        delay_s = max(_LEAST_PAUSE_S, delay_s)
        due_s = self._clock.now_s() + delay_s
        if due_s >= self._timer_due_s:
            return
        self._disarm()
        if due_s < inf:
            self._timer_due_s = due_s
            self._timer = self._clock.call_later(delay_s, self._ring)

    async def aclose(self) -> None:
        """Send everyone away empty, and end what runs."""
        self._is_closed = True
        self._disarm()
        while self._waiters:
            _resolve(self._waiters.popleft(), False)
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.wait([self._looking])

    @property
    def _is_busy(self) -> bool:
        return self._looking is not None and not self._looking.done()

    def _ring(self) -> None:
        self._timer = None
        self._timer_due_s = inf
        if not self._is_closed and not self._is_busy:
            self._looking = asyncio.create_task(self._tend(), name="s3 look")
            self._looking.add_done_callback(lambda _: self.stir())

    async def _tend(self) -> None:
        self._pause_s = min(2 * self._pause_s, self._poll_s)
        try:
            if await self._look():
                self._pause_s = min(_FIRST_PAUSE_S, self._poll_s)
        except Exception as error:  # broad: those who wait must hear of it, whatever it is
            while self._waiters:
                waiter = self._waiters.popleft()
                if not waiter.done():
                    waiter.set_exception(error)

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._timer_due_s = inf


def _resolve(woken: asyncio.Future[bool], result: bool) -> bool:
    if woken.done():
        return False
    woken.set_result(result)
    return True
