"""Sessions: one group of a queue, locked for one consumer by a lease that has its lane.

What is received in a session is under its lock's lease, so that both end together, and renewing the
lock is one row.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from pump.errors import GatewayError, SessionLockLost
from pump.message import Delivery
from pump.outcome import Refusal, Settlement
from pump.postgres.errors import SESSION_OVER, StatementRefused

from .consumer import POSTGRES, QueueCalls
from .waiting import Kind
from .wire import Receipt, message_of, octets_of, rows_of, text_of


class PostgresSession:
    """One session of one queue."""

    def __init__(
        self, calls: QueueCalls, session: str, lease: int, *, lease_s: float, ends_at_s: float
    ) -> None:
        self._calls = calls
        self._id = session
        self._lease = lease
        self._lease_s = lease_s
        self._ends_at_s = ends_at_s
        self.is_over = False
        """Whether it was closed, or is known to be lost."""

    @property
    def id(self) -> str:
        return self._id

    @property
    def lock_expires_at_s(self) -> float | None:
        return self._ends_at_s

    async def receive(self, *, max_count: int, wait_s: float) -> Sequence[Delivery]:
        calls, waiters = self._calls, self._calls.waiters
        ends_at_s = calls.clock.now_s() + wait_s
        while True:
            change_count = waiters.change_count
            deliveries = await calls.database.tasks.opened(
                self._look(min(max_count, POSTGRES.receive_batch)), calls.hand_back
            )
            if deliveries:
                return deliveries
            left_s = ends_at_s - calls.clock.now_s()
            if left_s <= 0 or not calls.database.is_open:
                return []
            if waiters.change_count == change_count and not await waiters.wait(Kind.OWN, left_s):
                return []

    async def settle(self, settlements: Sequence[Settlement]) -> Sequence[Refusal]:
        return await self._calls.settle(settlements, session=self._id)

    async def renew(self) -> None:
        asked_at_s = self._calls.clock.now_s()
        [[is_held]] = await self._calls.call(
            "SELECT @.renew(%b, %b)", "renew", self._lease, self._lease_s
        )
        if not is_held:
            raise self._lost()
        self._ends_at_s = asked_at_s + self._lease_s
        self._calls.waiters.due_in(self._lease_s)

    async def aclose(self) -> None:
        self.is_over = True
        await self._calls.call(
            "SELECT @.release(%b, %b)", "release", self._calls.queue, self._lease
        )
        self._calls.told_self()

    async def _look(self, max_count: int) -> list[Delivery] | None:
        calls = self._calls
        try:
            found = await calls.run(
                "SELECT * FROM @.receive_session(%b, %b, %b)",
                "receive",
                calls.queue,
                self._lease,
                max_count,
            )
        except StatementRefused as error:
            if error.code == SESSION_OVER:
                raise self._lost() from error
            raise
        head, *rows = rows_of(found)
        calls.waiters.queue_id = head.delivery
        calls.waiters.due_in(head.moved_at_s)
        rows.sort(key=lambda row: row.seq, reverse=bool(head.lease))
        return [
            Delivery(
                message=message_of(row, calls.queue),
                queue=calls.queue,
                receipt=str(Receipt(row.seq, row.delivery, row.lease)),
                attempt=row.attempt,
                lease_expires_at_s=self._ends_at_s,
                broker_id=row.seq,
            )
            for row in rows
        ] or None

    def _lost(self) -> SessionLockLost:
        self.is_over = True
        return SessionLockLost(self._calls.queue, self._id)


async def accept(
    calls: QueueCalls, session: str | None, *, lease_s: float, wait_s: float
) -> PostgresSession | None:
    """See `SessionGateway.accept_session`. Messages without a group are in no session."""
    waiters = calls.waiters
    kind = Kind.SESSION if session is None else Kind.OWN
    ends_at_s = calls.clock.now_s() + wait_s
    while True:
        change_count = waiters.change_count
        try:
            accepted = await calls.database.tasks.opened(_accept(calls, session, lease_s), let_go)
        except BaseException:
            waiters.wake(kind)
            raise
        if accepted is not None:
            # There may be another one.
            waiters.wake(Kind.SESSION)
            return accepted
        left_s = ends_at_s - calls.clock.now_s()
        if left_s <= 0 or not calls.database.is_open:
            return None
        if waiters.change_count == change_count and not await waiters.wait(kind, left_s):
            return None


async def _accept(calls: QueueCalls, session: str | None, lease_s: float) -> PostgresSession | None:
    asked_at_s = calls.clock.now_s()
    [[lease, group, queue_id, next_s]] = await calls.run(
        "SELECT * FROM @.accept(%b, %b, %b, NULL)",
        "accept a session",
        calls.queue,
        octets_of(session),
        lease_s,
    )
    calls.waiters.queue_id = queue_id
    calls.waiters.due_in(next_s)
    if lease is None:
        return None
    calls.waiters.due_in(lease_s)
    return PostgresSession(
        calls, text_of(group), lease, lease_s=lease_s, ends_at_s=asked_at_s + lease_s
    )


async def let_go(session: PostgresSession) -> None:
    """Close a session that no one will use; if that fails, it runs out by itself."""
    with suppress(GatewayError):
        await session.aclose()
