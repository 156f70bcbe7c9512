"""Session: one group of a queue by hand, for one consumer at a time.

Every session in turn, each to its end:

    while session := await consumer.accept_session():
        async with session:
            while deliveries := await session.receive(10):
                for delivery in deliveries:
                    …
                    await session.ack(delivery)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
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
from .loop.processing import DeliveryResult, result_by_hand
from .loop.reporting import Reporter
from .message import Delivery
from .observability import vocabulary
from .observability.log import get_logger
from .observability.telemetry import Telemetry
from .outcome import ABANDON, ACK, Ack, Action, Defer, Outcome, Reason, Reject, RejectionReason
from .ports import Gateway, SessionGateway, SessionPort
from .rejection import RejectionRouter, Routed, rejection_of
from .session_lock import SessionLock
from .subscription import Subscription
from .tasks import run_while_held
from .watched_ports import PortWatch, WatchedSessionPort

_log = get_logger("pump.session")


class Session:
    """The messages of one group, in the order they were sent, exclusively.

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
        reporter: Reporter,
    ) -> None:
        self._port = port
        self._subscription = subscription
        self._router = router
        self._clock = clock
        self._on_closed = on_closed
        self._reporter = reporter
        self._lock = SessionLock(port, subscription, clock)
        self._in_flight: dict[Delivery, float] = {}
        """Received and not settled, in the order of receipt, and when that was."""
        self._rejecting: set[Delivery] = set()
        self._is_closed = False

    @property
    def id(self) -> str:
        """The `group` of its messages; empty for the messages without one."""
        return self._port.id

    def start(self) -> None:
        """Keep the lock from now on."""
        self._lock.start()

    async def receive(self, max_count: int = 1, *, wait: timedelta | None = None) -> list[Delivery]:
        """Up to `max_count` deliveries as soon as there is one; an empty list after `wait`, and
        at once where the provider ends a session with what it gave.
        """
        self._require_open()
        wait = self._subscription.wait if wait is None else wait
        with self._telling_loss():
            with self._lock.held():
                received = await self._port.receive(
                    max_count=max_count, wait_s=wait.total_seconds()
                )
            self._lock.require()
        deliveries = list(received)
        self._in_flight.update(dict.fromkeys(deliveries, self._clock.now_s()))
        return deliveries

    async def ack(self, delivery: Delivery) -> None:
        """Remove the message for good. `InvalidReceipt` when it is not in flight any more."""
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
    ) -> Routed:
        """Route a copy as `Consumer.reject` does, then remove the original; return what became of
        it. Its successors stay in flight, unless the copy cannot be sent and the original is kept.

        Only what is ours is copied: the lock is renewed first, and kept while the copy is on its
        way. `SessionLockLost`, and no copy, when it is lost; `InvalidReceipt` when the message is
        not in flight any more.
        """
        rejection = rejection_of(reason, detail)
        self._require_open()
        with self._telling_loss():
            self._lock.require()
            self._successors(delivery)
            self._rejecting.add(delivery)
            try:
                await self._hold()
                routed = await self._route(delivery, rejection)
                await self._settle_held(delivery, routed.action, rejection, routed)
            finally:
                self._rejecting.discard(delivery)
        return routed

    async def renew(self) -> None:
        """Make the lock last another lease from now; for subscriptions that do not `renew`."""
        self._require_open()
        with self._telling_loss():
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

    async def _settle(self, delivery: Delivery, action: Action) -> None:
        self._require_open()
        with self._telling_loss():
            await self._settle_held(delivery, action, action)

    async def _settle_held(
        self, delivery: Delivery, action: Action, outcome: Outcome, routed: Routed | None = None
    ) -> None:
        async with self._lock.changing():
            is_by_reject = routed is not None
            successors = self._successors(delivery, is_by_reject=is_by_reject)
            # Left in flight, they would be settled before the one that must come first.
            handed_back = [] if isinstance(action, Ack) else successors
            results = [
                self._result(delivery, action, outcome, routed),
                *(self._result(each, ABANDON, ABANDON) for each in handed_back),
            ]
            refused = {each.delivery: each for each in await self._port.settle(results)}
            for each in (delivery, *handed_back):
                if each not in refused:
                    del self._in_flight[each]
                elif refused[each].is_final and each is not delivery:
                    del self._in_flight[each]
                    self._reporter.lost(each)
            self._reporter.settled([each for each in results if each.delivery not in refused])
            if delivery not in refused:
                return
            if refused[delivery].is_final:
                # It was in flight: only with the lock can it have gone.
                raise SessionLockLost(delivery.queue, self.id) from refused[delivery].error
            raise refused[delivery].error

    def _result(
        self, delivery: Delivery, action: Action, outcome: Outcome, routed: Routed | None = None
    ) -> DeliveryResult:
        run_s = self._clock.now_s() - self._in_flight[delivery]
        return result_by_hand(delivery, action, outcome, run_s=run_s, routed=routed)

    async def _route(self, delivery: Delivery, rejection: Reject) -> Routed:
        """Route the copy, and keep the lock meanwhile, also where the subscription does not renew,
        or the session counts as idle. Once it is lost, routing is cancelled.
        """
        return await run_while_held(
            self._router.route(delivery, rejection.reason, rejection.detail),
            self._hold,
            every_s=self._subscription.lease.total_seconds() / 2,
            clock=self._clock,
            name="reject",
        )

    async def _hold(self) -> None:
        """Have the broker say that the lock is ours; `SessionLockLost` if not.

        A broker that does not answer has not said no: then our own deadline counts.
        """
        try:
            async with self._clock.timeout(self._subscription.lease.total_seconds() / 4):
                await self._lock.renew()
        except SessionLockLost:
            raise
        except (GatewayError, TimeoutError) as error:
            _log.warning(
                vocabulary.SESSION_RENEWAL_FAILED,
                queue=self._subscription.queue,
                session=self.id,
                error=repr(error),
            )
        self._lock.require()

    @contextmanager
    def _telling_loss(self) -> Iterator[None]:
        """Everything in flight is lost with the lock, and reported once."""
        try:
            yield
        except SessionLockLost:
            lost, self._in_flight = list(self._in_flight), {}
            for delivery in lost:
                self._reporter.lost(delivery)
            raise

    def _successors(self, delivery: Delivery, *, is_by_reject: bool = False) -> list[Delivery]:
        in_flight = list(self._in_flight)
        is_taken = delivery in self._rejecting and not is_by_reject
        if delivery not in self._in_flight or is_taken:
            raise InvalidReceipt(delivery.queue, delivery.receipt)
        return in_flight[in_flight.index(delivery) + 1 :]

    def _require_open(self) -> None:
        if self._is_closed:
            raise PumpError(f"session {self.id!r} is closed; accept it again")

    async def _release(self) -> None:
        try:
            async with self._clock.timeout(self._subscription.lease.total_seconds()):
                await self._port.aclose()
            if not self._lock.is_lost:
                results = [self._result(each, ABANDON, ABANDON) for each in self._in_flight]
                self._in_flight = {}
                self._reporter.settled(results)
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
        *,
        reporter: Reporter,
        telemetry: Telemetry | None = None,
    ) -> None:
        self._gateway = gateway
        self._subscription = subscription
        self._router = router
        self._clock = clock
        self._reporter = reporter
        self._telemetry = telemetry
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
            watch = PortWatch(self._telemetry, self._subscription, self._clock)
            port = WatchedSessionPort(port, watch)
        session = Session(
            port,
            self._subscription,
            self._router,
            clock=self._clock,
            on_closed=self._open.discard,
            reporter=self._reporter,
        )
        self._open.add(session)
        session.start()
        return session
