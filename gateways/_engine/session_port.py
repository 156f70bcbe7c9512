"""The session port over an engine, in this process or another."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pump.errors import GatewayError, InvalidReceipt, SessionLockLost
from pump.message import Delivery
from pump.outcome import Refusal, Settlement
from pump.subscription import Subscription

from .broker import Broker, Grant, SessionBroker
from .capabilities import ENGINE


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
        self._in_hand: set[str] = set()
        self.on_closed: Callable[[EngineSession], None] | None = None
        """Told at the close, by whoever keeps account of what is open."""

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
        self._in_hand.update(delivery.receipt for delivery in deliveries)
        return deliveries

    async def settle(self, settlements: Sequence[Settlement]) -> Sequence[Refusal]:
        """What was in hand and is refused is gone with the lock."""
        receipts = [settlement.delivery.receipt for settlement in settlements]
        actions = [settlement.action for settlement in settlements]
        refused = await self._broker.settle(self._queue, receipts, actions)
        refusals = [self._refusal(settlements[position].delivery) for position in refused]
        self._in_hand.difference_update(receipts)
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
        if delivery.receipt in self._in_hand:
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
