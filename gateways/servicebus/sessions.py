"""Accepting sessions: each is a connection of its own, whose link is the lock."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from pump.errors import GatewayError, SessionLocked, SessionLockLost, UnsupportedOperation
from pump.subscription import Subscription

from .connection import ServiceBusConnections, close
from .errors import NoSessionFree, RequestRefused, ServiceBusTarget, fault_of
from .leases import LockTerms
from .names import group_of, session_id_of
from .queue_settings import check_subscription
from .session import Place, ServiceBusSession
from .wire import decode

if TYPE_CHECKING:
    from .connection import Handle
    from .sdk import Receiver

LEAST_WAIT_S = 0.1
MOST_WAIT_S = 5.0
"""How long the service is left to wait for a free session at a time."""
POLL_S = 0.2
"""How often a named session is tried that another holds: the service does not tell."""


class ServiceBusSessions:
    """Accepts the sessions of one subscription's queue."""

    def __init__(self, connections: ServiceBusConnections, subscription: Subscription) -> None:
        check_subscription(subscription)
        self._connections = connections
        self._clock = connections.clock
        self._queue = subscription.queue
        self._terms = LockTerms(
            lease_s=subscription.lease.total_seconds(),
            max_receive_count=subscription.max_receive_count,
        )

    async def accept(self, session: str | None, *, wait_s: float) -> ServiceBusSession | None:
        """See `SessionGateway.accept_session`."""
        ends_at_s = self._clock.now_s() + wait_s
        try:
            if session is None:
                return await self._accept_next(ends_at_s)
            return await self._accept_named(session, ends_at_s)
        except RequestRefused as error:
            if "session" not in error.detail.lower():
                raise
            raise UnsupportedOperation(
                "sb",
                f"sessions on queue {self._queue!r}",
                f"it was made without ({error.detail}); make it with options={{'sessions': True}}",
            ) from error

    async def _accept_named(self, group: str, ends_at_s: float) -> ServiceBusSession | None:
        while True:
            try:
                return await self._opened(session_id_of(group), group, LEAST_WAIT_S)
            except SessionLocked:
                left_s = ends_at_s - self._clock.now_s()
                if left_s <= 0:
                    return None
                await self._clock.sleep(min(POLL_S, left_s))

    async def _accept_next(self, ends_at_s: float) -> ServiceBusSession | None:
        """Those that rest are held meanwhile: the service would offer them again and again."""
        resting: list[ServiceBusSession] = []
        try:
            while True:
                now_s = self._clock.now_s()
                # A lease may end before a rest does: the service then offers the session again.
                resting = [each for each in resting if not each.is_over]
                if due := [each for each in resting if each.rests_until_s <= now_s]:
                    if await _is_renewed(due[0]):
                        resting.remove(due[0])
                        return due[0]
                    continue
                looks_at_s = min([ends_at_s, *(each.rests_until_s for each in resting)])
                wait_s = min(max(looks_at_s - now_s, LEAST_WAIT_S), MOST_WAIT_S)
                try:
                    found = await self._opened(None, None, wait_s)
                except NoSessionFree:
                    if self._clock.now_s() >= ends_at_s:
                        return None
                    continue
                if found.rests_until_s <= self._clock.now_s():
                    return found
                resting.append(found)
        finally:
            for each in resting:
                self._connections.chores.start(each.aclose(), "release")

    async def _opened(
        self, session_id: str | None, group: str | None, wait_s: float
    ) -> ServiceBusSession:
        from . import sdk

        receiver = sdk.session_receiver_of(
            self._connections.client,
            self._queue,
            session_id,
            wait_s=wait_s,
            read_s=self._connections.settings.read_s,
        )
        try:
            await self._open(receiver, group or "", wait_s)
            return await self._started(receiver, group)
        except BaseException:
            # Whatever happened, nothing stays locked.
            self._connections.chores.start(close(receiver, self._clock), "close")
            raise

    async def _open(self, receiver: Receiver, group: str, wait_s: float) -> None:
        from . import sdk

        where = ServiceBusTarget(self._connections.address, "accepting", self._queue, group)
        timeout_s = self._connections.settings.request_timeout_s + wait_s
        try:
            async with self._clock.timeout(timeout_s):
                await sdk.open_link(receiver)
        except Exception as error:  # broad: whatever the SDK raises is sorted
            raise fault_of(error, where) from error

    async def _started(self, receiver: Receiver, group: str | None) -> ServiceBusSession:
        from . import sdk

        session_id = sdk.session_of(receiver)
        handle = self._connections.own(
            _only(receiver, SessionLockLost(self._queue, group or session_id)), stale_s=None
        )
        place = Place(
            queue=self._queue,
            session_id=session_id,
            group=await self._group(handle, session_id) if group is None else group,
            terms=self._terms,
        )
        lock_s = sdk.session_lock_s(receiver, self._clock.time_s())
        session = ServiceBusSession(
            self._connections, place, handle, locked_at_s=self._clock.now_s(), lock_s=lock_s
        )
        await session.start()
        return session

    async def _group(self, handle: Handle[Receiver], session_id: str) -> str:
        """The group of a session whose id is only a hash of it: its messages know."""
        from . import sdk

        if (group := group_of(session_id)) is not None:
            return group
        where = ServiceBusTarget(self._connections.address, "accepting", self._queue, session_id)
        now_s = self._clock.time_s()
        seen = await handle.call(where, lambda receiver: sdk.peek(receiver, 1, 1, now_s))
        return (decode(seen[0][0]).group if seen else None) or session_id


async def _is_renewed(session: ServiceBusSession) -> bool:
    """Whether it is given out with a whole lease, as one that was just accepted; False when its
    lock is lost.
    """
    try:
        await session.renew()
    except SessionLockLost:
        return False
    return True


def _only(receiver: Receiver, lost: GatewayError) -> Callable[[], Receiver]:
    """Gives the receiver once: a session's link is its lock, and there is no other."""
    left = [receiver]

    def give() -> Receiver:
        if not left:
            raise lost
        return left.pop()

    return give
