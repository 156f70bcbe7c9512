"""Session: one group of a queue by hand, for one consumer at a time.

while session := await consumer.accept_session():
    async with session:
        while deliveries := await session.receive(10):
            for delivery in deliveries:
                …
                await session.ack(delivery)
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from contextlib import AsyncExitStack
from datetime import timedelta
from types import TracebackType
from typing import Self

from .clock import Clock
from .errors import (
    GatewayError,
    InvalidReceipt,
    PumpError,
    SessionLocked,
    SessionLockLost,
    UnsupportedOperation,
)
from .loop.ending import Ending
from .message import Delivery
from .observability import vocabulary
from .observability.log import get_logger
from .observability.telemetry import Telemetry
from .observability.watched_ports import Watch, WatchedSessionPort
from .outcome import ABANDON, ACK, Ack, Action, Defer, Outcome, Reject, RejectionReason, Settlement
from .ports import Gateway, SessionGateway, SessionPort
from .rejection import Reason, RejectionRouter
from .sealing import Sealing
from .session_lock import SessionLock
from .subscription import Subscription

_log = get_logger("pump.session")


class Session:
    """The messages of one group, in the order they were sent, and nobody else's meanwhile.

    Its lock is renewed until the session is closed, unless the subscription renews nothing or
    `max_lease` has passed without a call. Once the lock is lost, every call raises
    `SessionLockLost`. For one task at a time. Open one with `Consumer.accept_session`.
    """

    def __init__(
        self,
        port: SessionPort,
        subscription: Subscription,
        router: RejectionRouter,
        *,
        clock: Clock,
        on_closed: Callable[[Session], None],
        telemetry: Telemetry | None = None,
        sealing: Sealing | None = None,
    ) -> None:
        self._port = port
        self._subscription = subscription
        self._router = router
        self._clock = clock
        self._on_closed = on_closed
        self._telemetry = telemetry
        self._sealing = sealing
        self._lock = SessionLock(port, subscription, clock)
        self._in_hand: dict[Delivery, None] = {}
        """Received and not settled, in the order of receipt."""
        self._is_closed = False

    @property
    def id(self) -> str:
        """The `group` of its messages; empty for the messages without one."""
        return self._port.id

    def start(self) -> None:
        """Keep the lock from now on."""
        self._lock.start()

    async def receive(
        self, max_count: int = 1, *, wait: timedelta | None = None
    ) -> Sequence[Delivery]:
        """Up to `max_count` deliveries as soon as there is one; none after `wait`, and at once
        where the provider ends a session with what it gave.
        """
        self._require_open()
        wait = self._subscription.wait if wait is None else wait
        with self._lock.held():
            deliveries = await self._port.receive(max_count=max_count, wait_s=wait.total_seconds())
        self._lock.require()
        self._in_hand.update(dict.fromkeys(deliveries))
        return deliveries

    async def ack(self, delivery: Delivery) -> None:
        """Remove the message for good. `InvalidReceipt` when it is not in hand any more."""
        await self._settle(delivery, ACK)

    async def defer(self, delivery: Delivery, delay: timedelta = timedelta(0)) -> None:
        """Have it delivered again after `delay`, and its successors after it: those that were
        received are handed back with it.
        """
        await self._settle(delivery, Defer(delay.total_seconds()))

    async def abandon(self, delivery: Delivery) -> None:
        """Hand it back untried, available at once, with the successors that were received."""
        await self._settle(delivery, ABANDON)

    async def reject(
        self,
        delivery: Delivery,
        reason: Reason = RejectionReason.DELIVERY_ERROR,
        detail: str = "",
    ) -> None:
        """Route a copy as `Consumer.reject` does, then remove the original. Its successors stay
        in hand, unless the copy cannot be sent and the original is kept.
        """
        self._require_open()
        self._lock.require()
        self._successors(delivery)
        routed = await self._router.route(delivery, reason, detail)
        rejected = Reject(RejectionReason.DELIVERY_ERROR)
        await self._settle(delivery, routed.action, outcome=rejected)

    async def renew(self) -> None:
        """Make the lock last another lease from now; for subscriptions that do not `renew`."""
        self._require_open()
        await self._lock.renew()

    async def aclose(self) -> None:
        """Hand back what was not settled, and release the lock. Idempotent.

        A broker that cannot be told is not waited for longer than a lease: the lock runs out.
        """
        if self._is_closed:
            return
        self._is_closed = True
        self._on_closed(self)
        try:
            await self._lock.stop()
        finally:
            await self._release()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def _settle(
        self, delivery: Delivery, action: Action, *, outcome: Outcome | None = None
    ) -> None:
        self._require_open()
        async with self._lock.changing():
            successors = self._successors(delivery)
            # Left in hand, they would be settled before the one that must come first.
            handed_back = [] if isinstance(action, Ack) else successors
            refusals = await self._port.settle(
                [
                    Settlement(delivery, action),
                    *(Settlement(each, ABANDON) for each in handed_back),
                ]
            )
            refused = {refusal.delivery: refusal for refusal in refusals}
            for each in (delivery, *handed_back):
                if each not in refused or refused[each].is_final:
                    del self._in_hand[each]
            self._tell(handed_back, refused)
            if delivery not in refused:
                if self._sealing is not None and isinstance(action, Ack):
                    self._sealing.settled(delivery, is_handled=outcome is None)
                if self._telemetry is not None:
                    ending = Ending(delivery, action, outcome or action)
                    self._telemetry.settled(self._subscription, [ending])
                return
            if refused[delivery].is_final:
                # It was in hand: only with the lock can it have gone.
                raise SessionLockLost(delivery.queue, self.id) from refused[delivery].error
            raise refused[delivery].error

    def _tell(self, handed_back: Sequence[Delivery], refused: Container[Delivery]) -> None:
        if self._telemetry is not None:
            endings = [
                Ending(each, ABANDON, ABANDON) for each in handed_back if each not in refused
            ]
            self._telemetry.settled(self._subscription, endings)

    def _successors(self, delivery: Delivery) -> list[Delivery]:
        in_hand = list(self._in_hand)
        if delivery not in self._in_hand:
            raise InvalidReceipt(delivery.queue, delivery.receipt)
        return in_hand[in_hand.index(delivery) + 1 :]

    def _require_open(self) -> None:
        if self._is_closed:
            raise PumpError(f"session {self.id!r} is closed; accept it again")

    async def _release(self) -> None:
        try:
            async with self._clock.timeout(self._subscription.lease.total_seconds()):
                await self._port.aclose()
        except (GatewayError, TimeoutError) as error:
            _log.warning(
                vocabulary.SESSION_RELEASE_FAILED,
                queue=self._subscription.queue,
                session=self.id,
                error=repr(error),
            )


class Sessions:
    """Accepts the sessions of one subscription, and closes those that were left open."""

    def __init__(
        self,
        gateway: Gateway,
        subscription: Subscription,
        router: RejectionRouter,
        clock: Clock,
        telemetry: Telemetry | None = None,
        sealing: Sealing | None = None,
    ) -> None:
        self._gateway = gateway
        self._subscription = subscription
        self._router = router
        self._clock = clock
        self._telemetry = telemetry
        self._sealing = sealing
        self._open: set[Session] = set()

    async def accept(self, session: str | None, wait_s: float) -> Session | None:
        """The session of this id, or the next free one; see `Consumer.accept_session`."""
        gateway, name = self._gateway, self._gateway.capabilities.gateway
        # One that has none, or on some queues only, gives the better reason itself.
        if not isinstance(gateway, SessionGateway):
            raise UnsupportedOperation(
                name,
                "sessions",
                "it locks no group for one consumer; messages with a `group` are handled one "
                "after the other by the pump",
            )
        port = await gateway.accept_session(self._subscription, session, wait_s=wait_s)
        if port is not None:
            return self._opened(port)
        if session is None:
            return None
        raise SessionLocked(self._subscription.queue, session)

    async def aclose(self) -> None:
        """Close every session that is still open, also when one of them fails to."""
        async with AsyncExitStack() as stack:
            for session in self._open:
                stack.push_async_callback(session.aclose)

    def _opened(self, port: SessionPort) -> Session:
        if self._telemetry is not None:
            watch = Watch(self._telemetry, self._subscription, self._clock)
            port = WatchedSessionPort(port, watch)
        session = Session(
            port,
            self._subscription,
            self._router,
            clock=self._clock,
            on_closed=self._open.discard,
            telemetry=self._telemetry,
            sealing=self._sealing,
        )
        self._open.add(session)
        session.start()
        return session
