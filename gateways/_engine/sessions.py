"""Sessions on an engine: accepting, receiving, renewing and releasing, with the journal's word.

| a session is | from                                  | until                                    |
|--------------|---------------------------------------|------------------------------------------|
| held         | its `Locked` is written               | released, or the end of its lock         |
| over         | its lock has ended, or its owner died | for good: its receipts ended with it     |
"""

from __future__ import annotations

from asyncio import Future, wait

from pump.errors import SessionLockLost
from pump.message import Delivery

from .engine import TICK_S, QueueEngine, QueueWaiters, earliest
from .journal import Locked, Renewed, Unlocked
from .ports import Grant
from .record import LockedSession


class EngineSessions:
    """The sessions of one owner, in the process that has the engine."""

    def __init__(self, engine: QueueEngine, owner: str = "") -> None:
        self._engine = engine
        self._owner = owner

    async def accept(
        self,
        queue: str,
        session: str | None,
        *,
        wait_s: float,
        lease_s: float,
        request: int | None = None,
    ) -> Grant | None:
        """Lock a session, waiting up to `wait_s` until it is free; None when it was not."""
        engine = self._engine
        waiters = engine.waiters_of(queue)
        deadline_s, left_s = engine.clock.now_s() + wait_s, wait_s
        while True:
            now_s = engine.promote(waiters)
            lock = waiters.state.sessions.accept(
                session, until_s=now_s + lease_s, owner=self._owner, request=request
            )
            if lock is not None:
                return await self._granted(waiters, lock)
            if left_s <= 0 or engine.is_closed:
                return None
            is_woken = await waiters.watch(left_s)
            left_s = deadline_s - engine.clock.now_s() if is_woken else 0.0

    async def receive(
        self,
        queue: str,
        grant: Grant,
        *,
        max_count: int,
        wait_s: float,
        request: int | None = None,
    ) -> list[Delivery]:
        """Lease what comes next of a session, waiting up to `wait_s` for the first.

        `SessionLockLost` when its lock has ended, also while it waits.
        """
        engine = self._engine
        waiters = engine.waiters_of(queue)
        deadline_s, left_s = engine.clock.now_s() + wait_s, wait_s
        while True:
            lock = self._held(waiters, grant, engine.promote(waiters))
            batch = waiters.state.take_in_session(lock, max_count, request=request)
            if batch is not None:
                return await engine.hand_out(waiters, batch)
            if left_s <= 0 or engine.is_closed:
                return []
            is_woken = await waiters.watch(left_s)
            left_s = deadline_s - engine.clock.now_s() if is_woken else 0.0

    async def renew(
        self, queue: str, grant: Grant, *, lease_s: float, asked_at_s: float | None = None
    ) -> float:
        """Make a lock, and the leases under it, end `lease_s` from now, or from when it was asked;
        return when.
        """
        engine = self._engine
        waiters = engine.waiters_of(queue)
        from_s = earliest(engine.promote(waiters), asked_at_s)
        until_s = from_s + lease_s
        lock = self._held(waiters, grant, from_s)
        extension = waiters.state.sessions.renew(lock, until_s=until_s)
        waiters.notify()
        await engine.write(Renewed(queue, lock, extension), _ignore)
        return until_s

    async def release(self, queue: str, grant: Grant) -> None:
        """Hand back what is in flight, uncounted, and let go. Nothing happens when it is over."""
        waiters = self._engine.waiters_of(queue)
        self._engine.promote(waiters)
        lock = waiters.state.sessions.find(grant.token)
        if lock is not None:
            await self._let_go(waiters, lock)

    def granted(self, queue: str, request: int) -> Grant | None:
        """What a remote request has accepted, when its answer may have got lost."""
        waiters = self._engine.waiters_of(queue)
        self._engine.promote(waiters)
        lock = self._asked_for(waiters, request)
        return None if lock is None else _grant(lock)

    async def abandon_request(self, request: int) -> None:
        """Take back what a remote request accepted when its answer was not delivered."""
        for waiters in list(self._engine.waiters_by_queue.values()):
            lock = self._asked_for(waiters, request)
            if lock is not None:
                await self._let_go(waiters, lock)

    async def _granted(self, waiters: QueueWaiters, lock: LockedSession) -> Grant:
        def finish(error: Exception | None) -> None:
            if error is not None:
                self._end(waiters, lock)

        try:
            await self._engine.write(Locked(waiters.name, lock), finish)
        except BaseException:
            # The accept was cancelled: it has no owner.
            if lock.is_held:
                self._unlock(waiters, lock)
            raise
        return _grant(lock)

    async def _let_go(self, waiters: QueueWaiters, lock: LockedSession) -> None:
        handed_back = self._engine.abandon(waiters, lock.receipts())
        released = self._unlock(waiters, lock)
        tickets = [ticket for ticket in (handed_back, released) if ticket is not None]
        if tickets:
            await wait(tickets)
        for ticket in tickets:
            ticket.result()

    def _unlock(self, waiters: QueueWaiters, lock: LockedSession) -> Future[None] | None:
        def finish(error: Exception | None) -> None:
            if error is None:
                self._end(waiters, lock)

        return self._engine.journal.write(Unlocked(waiters.name, lock), finish)

    def _end(self, waiters: QueueWaiters, lock: LockedSession) -> None:
        if lock.is_held:
            waiters.state.release(lock)
            waiters.notify()

    def _held(self, waiters: QueueWaiters, grant: Grant, asked_at_s: float) -> LockedSession:
        lock = waiters.state.sessions.find(grant.token)
        if lock is None or lock.expires_s <= asked_at_s + TICK_S:
            raise SessionLockLost(waiters.name, grant.session)
        return lock

    def _asked_for(self, waiters: QueueWaiters, request: int) -> LockedSession | None:
        locks = (lock for lock in waiters.state.sessions if lock.owner == self._owner)
        return next((lock for lock in locks if lock.request == request), None)


def _grant(lock: LockedSession) -> Grant:
    return Grant(lock.group, lock.id, lock.expires_s)


def _ignore(error: Exception | None) -> None:
    """Nothing to finish: memory already says what the entry says."""
