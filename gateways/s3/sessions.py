"""Sessions of queues in objects: those of a gateway that are open, and where there are none."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Protocol, runtime_checkable

from pump.clock import Clock
from pump.errors import GatewayError, UnsupportedOperation
from pump.ports import SessionPort
from pump.subscription import Subscription

from .queues import Queues


class OpenSession(SessionPort, Protocol):
    """A session that says when it is closed."""

    on_closed: Callable[[Any], None] | None


@runtime_checkable
class SessionQueue(Protocol):
    """A queue whose layout has sessions."""

    async def accept_session(
        self, session: str | None, *, wait_s: float, lease_s: float
    ) -> OpenSession | None:
        """As `SessionGateway.accept_session`."""


class Sessions:
    """The sessions that a gateway has open; those that are left are closed with it."""

    def __init__(self, queues: Queues, clock: Clock) -> None:
        self._queues = queues
        self._clock = clock
        self._open: set[OpenSession] = set()

    async def accept(
        self, subscription: Subscription, session: str | None, *, wait_s: float
    ) -> SessionPort | None:
        """See `SessionGateway.accept_session`. Messages without a group are in no session."""
        queue = await self._queues.of(subscription.queue)
        if not isinstance(queue, SessionQueue):
            raise _no_sessions(subscription.queue)
        lease_s = subscription.lease.total_seconds()
        accepted = await queue.accept_session(session, wait_s=wait_s, lease_s=lease_s)
        if accepted is not None:
            self._open.add(accepted)
            accepted.on_closed = self._open.discard
        return accepted

    async def aclose(self, patience_s: float) -> None:
        """Release them all; a store that cannot be told is not waited for longer than this."""
        with suppress(TimeoutError):
            async with self._clock.timeout(patience_s):
                await asyncio.gather(*(_release(session) for session in list(self._open)))


async def _release(session: OpenSession) -> None:
    # What cannot be told runs out by itself.
    with suppress(GatewayError):
        await session.aclose()


def _no_sessions(queue: str) -> UnsupportedOperation:
    return UnsupportedOperation(
        "s3",
        f"sessions on {queue!r}, a queue in the layout of leases",
        'only the layout `log` knows groups; make the queue with the option layout="log"',
    )
