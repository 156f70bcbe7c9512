"""Connections that are made when they are needed.

| it is      | when                          | and then                                     |
|------------|-------------------------------|----------------------------------------------|
| absent     | never used, lost, or not made | the next caller starts an attempt            |
| connecting | an attempt is under way       | every caller waits for that one              |
| there      | the attempt succeeded         | callers get it while it is alive             |
| closed     | `aclose` was called           | callers get `ConnectionFailed` until it is   |
|            |                               | reopened                                     |

After an attempt that failed, the next begins no sooner than the backoff allows. A caller that is
cancelled leaves the attempt to the others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from pump.backoff import Backoff
from pump.clock import Clock
from pump.errors import ConnectionFailed
from pump.tasks import look_at

C = TypeVar("C")


class Reconnecting(Generic[C]):
    """One connection at a time. Safe for many tasks of one event loop."""

    def __init__(
        self,
        connect: Callable[[], Awaitable[C]],
        *,
        is_alive: Callable[[C], bool],
        end: Callable[[C], Awaitable[None]],
        backoff: Backoff,
        clock: Clock,
        target: str,
        made: Callable[[C], None] | None = None,
        is_open: bool = True,
    ) -> None:
        """`end` releases a connection that was lost, before there is another attempt.

        `made` is called with each connection as soon as callers get it. Without `is_open`,
        callers are refused until `reopen`.
        """
        self._connect = connect
        self._is_alive = is_alive
        self._end = end
        self._backoff = backoff
        self._clock = clock
        self._target = target
        self._made = made
        self._current: C | None = None
        self._attempt: asyncio.Task[C] | None = None
        self._failure_count = 0
        self._next_attempt_at_s = 0.0
        self._is_closed = not is_open

    @property
    def current(self) -> C | None:
        """The connection there is, or was until a moment ago; None before and between."""
        return self._current

    def reopen(self) -> None:
        """Let callers connect again after `aclose`."""
        self._is_closed = False

    async def get(self) -> C:
        """The connection, made now if there is none; raises what keeps it from being made."""
        if self._current is not None and self._is_alive(self._current):
            return self._current
        if self._is_closed:
            raise self._closed()
        if self._attempt is None or self._attempt.done():
            self._attempt = asyncio.create_task(self._make(), name=f"connect to {self._target}")
            self._attempt.add_done_callback(look_at)
        attempt = self._attempt
        # Waited for without being the task that is cancelled with its caller.
        await asyncio.wait([attempt])
        if attempt.cancelled():
            raise self._closed()
        return attempt.result()

    async def aclose(self) -> C | None:
        """End the attempt under way, refuse others, and give up the connection: it is the
        caller's to close. Idempotent.
        """
        self._is_closed = True
        if self._attempt is not None and not self._attempt.done():
            self._attempt.cancel()
            await asyncio.wait([self._attempt])
        current, self._current = self._current, None
        return current

    async def _make(self) -> C:
        lost, self._current = self._current, None
        if lost is not None:
            await self._end(lost)
        await self._clock.sleep(self._next_attempt_at_s - self._clock.now_s())
        try:
            made = await self._connect()
        except Exception:  # broad: whatever it was, the next attempt waits
            self._failure_count += 1
            pause_s = self._backoff.delay_s(self._failure_count, self._clock.chance())
            self._next_attempt_at_s = self._clock.now_s() + pause_s
            raise
        self._failure_count, self._next_attempt_at_s = 0, 0.0
        self._current = made
        if self._made is not None:
            self._made(made)
        return made

    def _closed(self) -> ConnectionFailed:
        return ConnectionFailed(self._target, "the gateway is closed")
