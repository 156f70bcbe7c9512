"""Sessions of a logged queue, as a process has them: the asynchronous shell.

Whether a session may be free is looked at in the replica, which costs a read at most once in
`poll_s`; only what may succeed is committed. The lock is believed in for as long as the store's
clock and ours both grant it.
"""

from __future__ import annotations

import asyncio
from asyncio import CancelledError, Future
from collections.abc import Awaitable, Callable, Sequence

import attrs

from pump.errors import GatewayError, InvalidReceipt, SessionLockLost
from pump.message import Delivery
from pump.outcome import Refusal, Settlement

from ..layout import Surroundings
from .codec import as_key
from .committer import Committer, Fulfilled, granted_s
from .context import ReceiveAnswer
from .entries import Accept, Release, Renew, SessionOp, TakeInSession
from .state import Result, SessionGrant, Takings


@attrs.frozen(kw_only=True)
class Shop:
    """What a session needs of its queue."""

    name: str
    committer: Committer
    poll_s: float
    is_closed: Callable[[], bool]
    """Whether nothing is to be waited for any more."""
    hand_out: Callable[[ReceiveAnswer, float], Awaitable[list[Delivery]]]
    """Delivers what was leased."""
    settle: Callable[[Sequence[Settlement]], Awaitable[list[Refusal]]]
    """As `ConsumerPort.settle`."""


class LoggedSessions:
    """Accepts the sessions of one queue."""

    def __init__(self, shop: Shop, surroundings: Surroundings) -> None:
        self._shop = shop
        self._around = surroundings

    async def accept(
        self, session: str | None, *, wait_s: float, lease_s: float
    ) -> LoggedSession | None:
        """See `SessionGateway.accept_session`."""
        looking = Looking(self._shop, self._around, wait_s)
        op = Accept(as_key(session), granted_s(lease_s))
        while True:
            if self._may_be_free(op.session):
                asked_at_s = self._around.clock.now_s()
                result = await commit(self._shop.committer, op, undo=self._undo)
                if isinstance(result, SessionGrant):
                    return LoggedSession(self._shop, self._around, result, asked_at_s, lease_s)
            elif not await looking.again():
                return None

    def _may_be_free(self, key: str | None) -> bool:
        replica = self._shop.committer.follower.replica
        if replica.next_due_s() <= self._around.time.earliest_s():
            return True
        order = replica.queue.order
        return order.next_free_group() is not None if key is None else order.is_free(key)

    def _undo(self, result: Result) -> None:
        if isinstance(result, SessionGrant):
            self._shop.committer.submit(Release(result.token))


class LoggedSession:
    """One session of a logged queue."""

    def __init__(
        self,
        shop: Shop,
        surroundings: Surroundings,
        granted: SessionGrant,
        asked_at_s: float,
        lease_s: float,
    ) -> None:
        self._shop = shop
        self._around = surroundings
        self._token = granted.token
        self._id = _text_of(granted.session)
        self._lease_s = lease_s
        self._ends_at_s = self._end_s(granted, asked_at_s)
        self._in_flight: set[str] = set()
        self._is_over = False
        self.on_closed: Callable[[LoggedSession], None] | None = None
        """Called at the close; set by the owner of the list of open sessions."""

    @property
    def id(self) -> str:
        return self._id

    @property
    def lock_expires_at_s(self) -> float | None:
        return self._ends_at_s

    async def receive(self, *, max_count: int, wait_s: float) -> Sequence[Delivery]:
        """Waits by looking, as a receive does, at most once in `poll_s`."""
        looking = Looking(self._shop, self._around, wait_s)
        op = TakeInSession(self._token, max_count)
        while True:
            self._require()
            if max_count < 1:
                return []
            if self._may_have_some():
                built_s = self._around.clock.now_s()
                result = await commit(self._shop.committer, op, undo=self._undo)
                if not isinstance(result, Takings):
                    raise self._lose()
                if result.taken:
                    return await self._hand_out(result, built_s)
            elif not await looking.again():
                return []

    async def settle(self, settlements: Sequence[Settlement]) -> Sequence[Refusal]:
        """What was in flight and is refused is gone with the lock."""
        self._require()
        refusals = await self._shop.settle(settlements)
        refused = [
            Refusal(each.delivery, self._error(each.delivery, each.error)) for each in refusals
        ]
        self._in_flight.difference_update(each.delivery.receipt for each in settlements)
        return refused

    async def renew(self) -> None:
        self._require()
        asked_at_s = self._around.clock.now_s()
        op = Renew(self._token, granted_s(self._lease_s))
        result = await commit(self._shop.committer, op, undo=_nothing)
        if not isinstance(result, SessionGrant):
            raise self._lose()
        self._ends_at_s = self._end_s(result, asked_at_s)

    async def aclose(self) -> None:
        if self.on_closed is not None:
            self.on_closed(self)
        if self._is_over or self._left_s() <= 0:
            self._is_over = True
            return
        self._is_over = True
        await commit(self._shop.committer, Release(self._token), undo=_nothing)

    async def _hand_out(self, takings: Takings, built_s: float) -> Sequence[Delivery]:
        got = ReceiveAnswer(takings.taken, built_s)
        deliveries = await self._shop.hand_out(got, self._ends_at_s - built_s)
        self._in_flight.update(delivery.receipt for delivery in deliveries)
        return deliveries

    def _may_have_some(self) -> bool:
        replica = self._shop.committer.follower.replica
        lock = replica.queue.sessions.find(self._token)
        if lock is None:
            raise self._lose()
        is_due = replica.next_due_s() <= self._around.time.earliest_s()
        return is_due or lock.ordering_group.has_ready()

    def _undo(self, result: Result) -> None:
        if isinstance(result, Takings):
            self._shop.committer.hand_back(result.taken)

    def _end_s(self, granted: SessionGrant, asked_at_s: float) -> float:
        clock, time = self._around.clock, self._around.time
        by_the_store_s = clock.now_s() + granted.expires_s - time.latest_s()
        return min(asked_at_s + self._lease_s, by_the_store_s)

    def _left_s(self) -> float:
        return self._ends_at_s - self._around.clock.now_s()

    def _require(self) -> None:
        if self._is_over or self._left_s() <= 0:
            raise self._lose()

    def _lose(self) -> SessionLockLost:
        self._is_over = True
        return SessionLockLost(self._shop.name, self._id)

    def _error(self, delivery: Delivery, error: GatewayError) -> GatewayError:
        is_lost = isinstance(error, InvalidReceipt) and delivery.receipt in self._in_flight
        return self._lose() if is_lost else error


class Looking:
    """Looks at the store, at once and then after pauses, until the time is over."""

    def __init__(self, shop: Shop, surroundings: Surroundings, wait_s: float) -> None:
        self._shop = shop
        self._clock = surroundings.clock
        self._ends_at_s = self._clock.now_s() + wait_s
        self._left_s = wait_s
        self._has_looked = False

    async def again(self) -> bool:
        """Whether there was time to look once more."""
        if self._has_looked:
            if self._left_s <= 0 or self._shop.is_closed():
                return False
            pause_s = min(self._left_s, self._shop.poll_s)
            await self._clock.sleep(pause_s)
            # The first is exact when the pause was all there was left.
            self._left_s = min(self._left_s - pause_s, self._ends_at_s - self._clock.now_s())
        self._has_looked = True
        await self._shop.committer.look()
        return True


async def commit(committer: Committer, op: SessionOp, *, undo: Callable[[Result], None]) -> Result:
    """Commit an operation; its outcome is undone if the caller has been cancelled."""
    done = committer.submit(op)
    try:
        return (await asyncio.shield(done)).result
    except CancelledError:
        done.add_done_callback(lambda done: _undo(done, undo))
        raise


def _undo(done: Future[Fulfilled], undo: Callable[[Result], None]) -> None:
    if not done.cancelled() and done.exception() is None:
        undo(done.result().result)


def _nothing(result: Result) -> None:
    """There is nothing to undo."""


def _text_of(key: str) -> str:
    """The group that `as_key` made a key of."""
    return key if key.isascii() else key.encode("latin-1").decode("utf-8", "surrogatepass")
