"""The gate in front of the connections: so many calls at once, and fewer long polls.

A call holds one connection from its start to its end. When none is free it waits in line,
other calls before long polls, and gives up after a while; a long poll does not: its turn comes
when another one ends. Long polls may hold all but a reserve, so that an ack never waits for one.
"""

from __future__ import annotations

import asyncio
from collections import deque
from concurrent.futures import Future as ThreadFuture
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import Any

from pump.clock import Clock
from pump.errors import ConnectionFailed, GatewayError, PoolExhausted


def closed(target: str) -> ConnectionFailed:
    """What a call gets that comes, or still runs, when its gateway is closed."""
    return ConnectionFailed(target, "the gateway is closed")


class Connections:
    """Counts the calls in flight on one event loop."""

    def __init__(
        self, limit: int, *, long_poll_limit: int, patience_s: float, clock: Clock
    ) -> None:
        self._limit = limit
        self._free = limit
        self._free_for_polls = long_poll_limit
        self._patience_s = patience_s
        self._clock = clock
        self._calls: deque[_Waiter] = deque()
        self._polls: deque[_Waiter] = deque()
        self._held: set[Held] = set()
        self._idle: asyncio.Future[None] | None = None
        self._is_closed = False

    @property
    def in_use(self) -> int:
        """How many connections are held, also by threads nobody waits for any more."""
        return self._limit - self._free

    def hold(self, target: str, *, is_long_poll: bool = False) -> Held:
        """`async with connections.hold("orders"): …` holds a connection for the body.

        Raises `PoolExhausted` when none became free in time, `ConnectionFailed` when closed.
        """
        return Held(self, target, is_long_poll)

    async def aclose(self, *, grace_s: float) -> None:
        """Fail those who wait and the long polls at once, the other calls after the grace."""
        self._is_closed = True
        for waiter in [*self._calls, *self._polls]:
            waiter.fail(closed(waiter.target))
        for held in list(self._held):
            if held.is_long_poll:
                held.abort()
        await self._until_idle(grace_s)
        for held in list(self._held):
            held.abort()
        await self._until_idle(grace_s)

    async def _until_idle(self, patience_s: float) -> None:
        if not self._held:
            return
        self._idle = asyncio.get_running_loop().create_future()
        # Closing waits for real sockets, so in real time even when a test's clock stands still.
        await asyncio.wait([self._idle], timeout=patience_s)

    # What a Held does.

    async def acquire(self, held: Held) -> None:
        """Take a free connection, or wait in line for one."""
        if self._is_closed:
            raise closed(held.target)
        if self._free and (not held.is_long_poll or self._free_for_polls):
            self._take(held.is_long_poll)
        else:
            await self._wait(held)
        self._held.add(held)

    def let_go(self, held: Held) -> None:
        """Count a call as over; its connection may still be busy."""
        self._held.discard(held)
        if self._idle is not None and not self._held and not self._idle.done():
            self._idle.set_result(None)

    def release(self, is_long_poll: bool) -> None:
        """Give a connection back, to the first in line if somebody waits."""
        self._free += 1
        self._free_for_polls += is_long_poll
        self._serve()

    def _take(self, is_long_poll: bool) -> None:
        self._free -= 1
        self._free_for_polls -= is_long_poll

    def _serve(self) -> None:
        while self._free and self._calls:
            self._hand_over(self._calls.popleft())
        while self._free and self._free_for_polls and self._polls:
            self._hand_over(self._polls.popleft())

    def _hand_over(self, waiter: _Waiter) -> None:
        if waiter.turn.done():
            return
        self._take(waiter.is_long_poll)
        waiter.turn.set_result(None)

    async def _wait(self, held: Held) -> None:
        line = self._polls if held.is_long_poll else self._calls
        waiter = _Waiter(held.target, held.is_long_poll)
        line.append(waiter)
        timer = None
        if not held.is_long_poll:
            exhausted = partial(waiter.fail, PoolExhausted(held.target, self._limit))
            timer = self._clock.call_later(self._patience_s, exhausted)
        try:
            await waiter.turn
        except asyncio.CancelledError:
            if waiter.was_served():
                self.release(held.is_long_poll)
            raise
        finally:
            if timer is not None:
                timer.cancel()
            with suppress(ValueError):
                line.remove(waiter)
        # Its turn may have come just before the end, which passes over who holds nothing yet.
        if self._is_closed:
            self.release(held.is_long_poll)
            raise closed(held.target)


class _Waiter:
    """One call in line."""

    def __init__(self, target: str, is_long_poll: bool) -> None:
        self.target = target
        self.is_long_poll = is_long_poll
        self.turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def fail(self, error: GatewayError) -> None:
        if not self.turn.done():
            self.turn.set_exception(error)

    def was_served(self) -> bool:
        turn = self.turn
        return turn.done() and not turn.cancelled() and turn.exception() is None


class Held:
    """One connection in use; leaving the block gives it back."""

    def __init__(self, connections: Connections, target: str, is_long_poll: bool) -> None:
        self.target = target
        self.is_long_poll = is_long_poll
        self._connections = connections
        self._task: asyncio.Task[Any] | None = None
        self._cancelling = 0
        self._is_aborted = False
        self._is_kept = False

    async def __aenter__(self) -> Held:
        await self._connections.acquire(self)
        self._task = asyncio.current_task()
        self._cancelling = self._task.cancelling() if self._task else 0
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._connections.let_go(self)
        if not self._is_kept:
            self._connections.release(self.is_long_poll)
        if not self._is_aborted or self._task is None:
            return
        # A cancellation that came from outside as well must win over our own.
        ours_only = self._task.uncancel() <= self._cancelling
        if ours_only and kind is not None and issubclass(kind, asyncio.CancelledError):
            raise closed(self.target) from None

    def keep_until(self, work: ThreadFuture[Any]) -> None:
        """Hold the connection until a thread is done with it, though nobody waits for it."""
        self._is_kept = True
        loop = asyncio.get_running_loop()

        def give_back(_: object) -> None:
            # A loop that has ended counts no connections.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(self._connections.release, self.is_long_poll)

        work.add_done_callback(give_back)

    def abort(self) -> None:
        """Make the call fail as closed, wherever it waits."""
        if not self._is_aborted and self._task is not None:
            self._is_aborted = True
            self._task.cancel()
