"""The ports over an engine, in this process or another."""

from __future__ import annotations

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
