"""The ports over an engine, in this process or another, and sessions on it."""

from __future__ import annotations

from asyncio import Future, wait
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from typing import Protocol, TypeVar

import attrs

from pump.capabilities import Capabilities, OrderingMode
from pump.errors import GatewayError, InvalidReceipt, QueueNotFound, SessionLockLost
from pump.message import Delivery, Message
from pump.outcome import Action, Refusal, Settlement
from pump.ports import QueueStats
from pump.subscription import MakeChannels, QueueSpec, Subscription

from .engine import TICK_S, QueueEngine, QueueWaiters, earliest
from .journal import Locked, Renewed, Unlocked
from .record import LockedSession

_T = TypeVar("_T")


class EngineConsumer:
    """Receives from one queue of an engine."""

    def __init__(self, engine: Broker, queue: str, lease: timedelta) -> None:
        self._engine = engine
        self._queue = queue
        self._lease_s = lease.total_seconds()

    async def receive(self, *, max_count: int, wait_s: float) -> Sequence[Delivery]:
        return await self._engine.receive(
            self._queue,
            max_count=min(max_count, ENGINE.receive_batch),
            wait_s=wait_s,
            lease_s=self._lease_s,
        )

    async def settle(self, settlements: Sequence[Settlement]) -> Sequence[Refusal]:
        if len(settlements) > ENGINE.settle_batch:
            refused_of = [await self.settle(part) for part in _parts(settlements)]
            return [each for refusals in refused_of for each in refusals]
        receipts = [settlement.delivery.receipt for settlement in settlements]
        actions = [settlement.action for settlement in settlements]
        refused = await self._engine.settle(self._queue, receipts, actions)
        return [refusal(self._queue, settlements[position].delivery) for position in refused]

    async def extend(self, deliveries: Sequence[Delivery], *, lease_s: float) -> Sequence[Refusal]:
        if len(deliveries) > ENGINE.settle_batch:
            refused_of = [await self.extend(part, lease_s=lease_s) for part in _parts(deliveries)]
            return [each for refusals in refused_of for each in refusals]
        receipts = [delivery.receipt for delivery in deliveries]
        refused = await self._engine.extend(self._queue, receipts, lease_s=lease_s)
        return [refusal(self._queue, deliveries[position]) for position in refused]

    async def aclose(self) -> None:
        """Nothing to let go of: the engine is the gateway's."""


class EngineProducer:
    """Sends to one queue of an engine."""

    def __init__(self, engine: Broker, queue: str) -> None:
        self._engine = engine
        self._queue = queue

    async def send(self, messages: Sequence[Message], *, delay_s: float = 0.0) -> Sequence[str]:
        return await self._engine.send(self._queue, messages, delay_s=delay_s)

    async def aclose(self) -> None:
        """Nothing to let go of: the engine is the gateway's."""


class EngineAdmin:
    """Looks after the queues of an engine."""

    def __init__(self, engine: Broker) -> None:
        self._engine = engine

    async def ensure(self, spec: QueueSpec, make: MakeChannels) -> None:
        await self._engine.ensure(spec, make)

    async def queues(self) -> Sequence[QueueStats]:
        return await self._engine.queues()

    async def stats(self, queue: str) -> QueueStats:
        for stats in await self._engine.queues():
            if stats.name == queue:
                return stats
        raise QueueNotFound(queue)

    async def peek(self, queue: str, *, max_count: int = 10) -> Sequence[Message]:
        return await self._engine.peek(queue, max_count=max_count)

    async def purge(self, queue: str) -> int:
        return await self._engine.purge(queue)


def refusal(queue: str, delivery: Delivery) -> Refusal:
    """Refuse a delivery whose receipt is not valid."""
    return Refusal(delivery, InvalidReceipt(queue, delivery.receipt))


def _parts(batch: Sequence[_T]) -> Iterator[Sequence[_T]]:
    """A batch in pieces of which the engine applies each at once."""
    for start in range(0, len(batch), ENGINE.settle_batch):
        yield batch[start : start + ENGINE.settle_batch]


# The session port over an engine, in this process or another.


class EngineSession:
    """One session of one queue of an engine."""

    def __init__(
        self,
        broker: Broker,
        sessions: SessionBroker,
        subscription: Subscription,
        grant: Grant,
    ) -> None:
        self._broker = broker
        self._sessions = sessions
        self._queue = subscription.queue
        self._lease_s = subscription.lease.total_seconds()
        self._grant = grant
        self._ends_at_s = grant.expires_at_s
        self._in_flight: set[str] = set()
        self.on_closed: Callable[[EngineSession], None] | None = None
        """Called at the close; set by the owner of the list of open sessions."""

    @property
    def id(self) -> str:
        return self._grant.session

    @property
    def lock_expires_at_s(self) -> float | None:
        return self._ends_at_s

    async def receive(self, *, max_count: int, wait_s: float) -> Sequence[Delivery]:
        deliveries = await self._sessions.receive(
            self._queue,
            self._grant,
            max_count=min(max_count, ENGINE.receive_batch),
            wait_s=wait_s,
        )
        self._in_flight.update(delivery.receipt for delivery in deliveries)
        return deliveries

    async def settle(self, settlements: Sequence[Settlement]) -> Sequence[Refusal]:
        """What was in flight and is refused is gone with the lock."""
        receipts = [settlement.delivery.receipt for settlement in settlements]
        actions = [settlement.action for settlement in settlements]
        refused = await self._broker.settle(self._queue, receipts, actions)
        refusals = [self._refusal(settlements[position].delivery) for position in refused]
        self._in_flight.difference_update(receipts)
        return refusals

    async def renew(self) -> None:
        self._ends_at_s = await self._sessions.renew(
            self._queue, self._grant, lease_s=self._lease_s
        )

    async def aclose(self) -> None:
        if self.on_closed is not None:
            self.on_closed(self)
        await self._sessions.release(self._queue, self._grant)

    def _refusal(self, delivery: Delivery) -> Refusal:
        error: GatewayError = InvalidReceipt(self._queue, delivery.receipt)
        if delivery.receipt in self._in_flight:
            error = SessionLockLost(self._queue, self.id)
        return Refusal(delivery, error)


async def accept(
    broker: Broker,
    sessions: SessionBroker,
    subscription: Subscription,
    session: str | None,
    *,
    wait_s: float,
) -> EngineSession | None:
    """See `SessionGateway.accept_session`. Messages without a group are in no session."""
    lease_s = subscription.lease.total_seconds()
    grant = await sessions.accept(subscription.queue, session, wait_s=wait_s, lease_s=lease_s)
    return None if grant is None else EngineSession(broker, sessions, subscription, grant)


# What every gateway on this engine can do; what it stores where is its own business.

ENGINE = Capabilities(
    gateway="engine",
    ordering_modes=frozenset({OrderingMode.FIFO, OrderingMode.LIFO}),
    has_strict_order=True,
    has_groups=True,
    has_deduplication=True,
    has_native_redrive=True,
    has_uncounted_abandon=True,
    has_peek=True,
    has_purge=True,
    has_exact_stats=True,
    receive_batch=1000,
    settle_batch=10_000,
)


# What the ports need of an engine, be it in this process or behind a socket.


# One method for each port method: the rule of five would only split it by name.
class Broker(Protocol):
    """Send, receive, settle and look after named queues; `Engine` documents each."""

    async def send(
        self, queue: str, messages: Sequence[Message], *, delay_s: float = 0.0
    ) -> list[str]:
        """Store messages."""

    async def receive(
        self, queue: str, *, max_count: int, wait_s: float, lease_s: float
    ) -> list[Delivery]:
        """Lease messages."""

    async def settle(
        self, queue: str, receipts: Sequence[str], actions: Sequence[Action]
    ) -> list[int]:
        """Settle by receipt; the positions of invalid ones come back."""

    async def extend(self, queue: str, receipts: Sequence[str], *, lease_s: float) -> list[int]:
        """Extend by receipt; the positions of invalid ones come back."""

    async def ensure(self, spec: QueueSpec, make: MakeChannels) -> None:
        """Create, validate or assume a queue."""

    async def queues(self) -> list[QueueStats]:
        """Count what is in every queue."""

    async def peek(self, queue: str, *, max_count: int) -> list[Message]:
        """Look at the next available messages."""

    async def purge(self, queue: str) -> int:
        """Remove every message."""


@attrs.frozen
class Grant:
    """A session that was accepted: its group, the token that proves it, and its first end."""

    session: str
    token: str
    expires_at_s: float


class SessionBroker(Protocol):
    """Accept, receive in, renew and release sessions; `EngineSessions` documents each."""

    async def accept(
        self, queue: str, session: str | None, *, wait_s: float, lease_s: float
    ) -> Grant | None:
        """Lock a session."""

    async def receive(
        self, queue: str, grant: Grant, *, max_count: int, wait_s: float
    ) -> list[Delivery]:
        """Lease messages of a session."""

    async def renew(self, queue: str, grant: Grant, *, lease_s: float) -> float:
        """Keep a session, and say until when."""

    async def release(self, queue: str, grant: Grant) -> None:
        """Let go of a session."""


# Sessions on an engine: accepting, receiving, renewing and releasing, with the journal's word.
#
# | a session is | from                                | until                                  |
# |--------------|-------------------------------------|----------------------------------------|
# | held         | its `Locked` is written             | released, or the end of its lock       |
# | over         | its lock ended, or its owner died   | for good: its receipts ended with it   |


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
