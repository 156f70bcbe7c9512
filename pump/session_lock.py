"""Session lock: renewed halfway to its end, again and again, and known to be lost in time.

| the lock is | when                                        | and then                          |
|-------------|---------------------------------------------|-----------------------------------|
| held        | accepted, and its end has not passed        | calls go through                  |
| due         | half of what was granted is over            | renewed, if the subscription does |
| idle        | no call for `Subscription.max_lease`        | not renewed until the next call   |
| lost        | its end has passed, or the broker says so   | every call raises                 |
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from math import inf

from .backoff import RECONNECT
from .clock import Clock
from .errors import GatewayError, SessionLockLost
from .observability import vocabulary
from .observability.log import get_logger
from .ports import SessionPort
from .subscription import Subscription

_log = get_logger("pump.session")


class SessionLock:
    """The lock of one session, from its acceptance until it is released or lost."""

    def __init__(self, port: SessionPort, subscription: Subscription, clock: Clock) -> None:
        self._port = port
        self._queue = subscription.queue
        self._renews = subscription.renew
        idle_after = subscription.max_lease
        self._idle_after_s = inf if idle_after is None else idle_after.total_seconds()
        self._clock = clock
        self._changing = asyncio.Lock()
        self._keeping: asyncio.Task[None] | None = None
        self._is_lost = False
        self._call_count = 0
        self._called_at_s = clock.now_s()
        self._failure_count = 0

    @property
    def is_lost(self) -> bool:
        """Whether its end has passed, or the broker said so."""
        return self._left_s() <= 0

    def start(self) -> None:
        """Renew in the background from now on, if the subscription renews; `stop` ends it."""
        if self._renews:
            self._keeping = asyncio.create_task(self._keep(), name="session keeper")

    async def stop(self) -> None:
        """Renew no more. Raises what has broken the background task, if anything has."""
        if self._keeping is None:
            return
        self._keeping.cancel()
        await asyncio.wait([self._keeping])
        if not self._keeping.cancelled():
            self._keeping.result()

    @contextmanager
    def held(self) -> Iterator[None]:
        """A call on the session: `SessionLockLost` unless the lock is held when it begins.

        It counts as activity until its end, and a loss that it meets is remembered.
        """
        self.require()
        self._call_count += 1
        try:
            yield
        except SessionLockLost:
            self._lose()
            raise
        finally:
            self._call_count -= 1
            self._called_at_s = self._clock.now_s()

    @asynccontextmanager
    async def changing(self) -> AsyncIterator[None]:
        """As `held`, for a call that must not run beside a renewal or another such call."""
        async with self._changing:
            with self.held():
                yield

    def require(self) -> None:
        """Raise `SessionLockLost` unless the lock is ours, as far as we know."""
        if self._left_s() <= 0:
            self._lose()
            raise SessionLockLost(self._queue, self._port.id)

    async def renew(self) -> None:
        """Make it last for another lease from now."""
        async with self.changing():
            await self._port.renew()

    async def _keep(self) -> None:
        granted_s = self._left_s()
        # Infinite: there is nothing (more) that could run out.
        while 0 < (left_s := self._left_s()) < inf:
            pause_s = max(left_s - granted_s / 2, self._pause_s(granted_s))
            # From before the pause: the caller may renew during it, and so leave nothing to gain.
            end_s = self._end_s()
            await self._clock.sleep(min(left_s, pause_s))
            if self._is_idle() or not await self._is_renewed(granted_s):
                continue
            if self._end_s() <= end_s:
                return  # The provider allows no more; the first call after the end finds it lost.
            granted_s = self._left_s()
        if left_s <= 0:
            self._lose()

    async def _is_renewed(self, granted_s: float) -> bool:
        if self._left_s() <= 0:
            return False
        try:
            # A reply that never comes must not be waited for until the lock has run out.
            async with self._clock.timeout(granted_s / 4), self._changing:
                await self._port.renew()
        except SessionLockLost:
            self._lose()
            return False
        except (GatewayError, TimeoutError) as error:
            self._failure_count += 1
            _log.warning(
                vocabulary.SESSION_RENEWAL_FAILED,
                queue=self._queue,
                session=self._port.id,
                error=repr(error),
            )
            return False
        self._failure_count = 0
        return True

    def _pause_s(self, granted_s: float) -> float:
        """Before the next try: none, unless the last one failed or the session is idle."""
        if self._is_idle():
            return granted_s / 8
        if self._failure_count == 0:
            return 0.0
        backoff_s = RECONNECT.delay_s(self._failure_count, self._clock.chance())
        return min(backoff_s, granted_s / 8)

    def _is_idle(self) -> bool:
        idle_s = self._clock.now_s() - self._called_at_s
        return self._call_count == 0 and idle_s >= self._idle_after_s

    def _end_s(self) -> float:
        end_s = self._port.lock_expires_at_s
        return inf if end_s is None else end_s

    def _left_s(self) -> float:
        return 0.0 if self._is_lost else self._end_s() - self._clock.now_s()

    def _lose(self) -> None:
        if not self._is_lost:
            self._is_lost = True
            _log.warning(vocabulary.SESSION_LOST, queue=self._queue, session=self._port.id)
