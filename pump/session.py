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

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from datetime import timedelta
from math import inf
from types import TracebackType
from typing import Self
from weakref import WeakKeyDictionary

from .backoff import RECONNECT
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
from .loop.reporting import PortWatch, Reporter, WatchedSessionPort
from .message import Delivery
from .observability import vocabulary
from .observability.log import get_logger
from .observability.telemetry import Telemetry
from .outcome import ABANDON, ACK, Ack, Action, Defer, Outcome, Reason, Reject, RejectionReason
from .ports import Gateway, SessionGateway, SessionPort
from .rejection import Copied, RejectionRouter, Routed, rejection_of
from .subscription import Subscription
from .tasks import run_while_held

_log = get_logger("pump.session")


# Session lock: renewed halfway to its end, again and again, and known to be lost in time.
#
# | the lock is | when                                        | and then                          |
# |-------------|---------------------------------------------|-----------------------------------|
# | held        | accepted, and its end has not passed        | calls go through                  |
# | due         | half of what was granted is over            | renewed, if the subscription does |
# | idle        | no call for `Subscription.max_lease`        | not renewed until the next call   |
# | lost        | its end has passed, or the broker says so   | every call raises                 |


class SessionLock:
    """The lock of one session, from its acceptance until it is released or lost."""

    def __init__(self, port: SessionPort, subscription: Subscription, clock: Clock) -> None:
        self._port = port
        self._queue = subscription.queue
        self._renews = subscription.renew
        idle_after = subscription.max_lease
        self._idle_after_s = inf if idle_after is None else idle_after.total_seconds()
        self._clock = clock
        self._changing = asyncio.Lock()
        self._keeping: asyncio.Task[None] | None = None
        self._is_lost = False
        self._call_count = 0
        self._called_at_s = clock.now_s()
        self._failure_count = 0

    @property
    def is_lost(self) -> bool:
        """Whether its end has passed, or the broker said so."""
        return self._left_s() <= 0

    def start(self) -> None:
        """Renew in the background from now on, if the subscription renews; `stop` ends it."""
        if self._renews:
            self._keeping = asyncio.create_task(self._keep(), name="session keeper")

    async def stop(self) -> None:
        """Renew no more. Raises what has broken the background task, if anything has."""
        if self._keeping is None:
            return
        self._keeping.cancel()
        await asyncio.wait([self._keeping])
        if not self._keeping.cancelled():
            self._keeping.result()

    @contextmanager
    def held(self) -> Iterator[None]:
        """A call on the session: `SessionLockLost` unless the lock is held when it begins.

        It counts as activity until its end, and a loss that it meets is remembered.
        """
        self.require()
        self._call_count += 1
        try:
            yield
        except SessionLockLost:
            self._lose()
            raise
        finally:
            self._call_count -= 1
            self._called_at_s = self._clock.now_s()

    @asynccontextmanager
    async def changing(self) -> AsyncIterator[None]:
        """As `held`, for a call that must not run beside a renewal or another such call."""
        async with self._changing:
            with self.held():
                yield

    def require(self) -> None:
        """Raise `SessionLockLost` unless the lock is ours, as far as we know."""
        if self._left_s() <= 0:
            self._lose()
            raise SessionLockLost(self._queue, self._port.id)

    async def renew(self) -> None:
        """Make it last for another lease from now."""
        async with self.changing():
            await self._port.renew()

    async def _keep(self) -> None:
        granted_s = self._left_s()
        # Infinite: there is nothing (more) that could run out.
        while 0 < (left_s := self._left_s()) < inf:
            pause_s = max(left_s - granted_s / 2, self._pause_s(granted_s))
            # From before the pause: the caller may renew during it, and so leave nothing to gain.
            end_s = self._end_s()
            await self._clock.sleep(min(left_s, pause_s))
            if self._is_idle() or not await self._is_renewed(granted_s):
                continue
            if self._end_s() <= end_s:
                return  # The provider allows no more; the first call after the end finds it lost.
            granted_s = self._left_s()
        if left_s <= 0:
            self._lose()

    async def _is_renewed(self, granted_s: float) -> bool:
        if self._left_s() <= 0:
            return False
        try:
            # A reply that never comes must not be waited for until the lock has run out.
            async with self._clock.timeout(granted_s / 4), self._changing:
                await self._port.renew()
        except SessionLockLost:
            self._lose()
            return False
        except (GatewayError, TimeoutError) as error:
            self._failure_count += 1
            _log.warning(
                vocabulary.SESSION_RENEWAL_FAILED,
                queue=self._queue,
                session=self._port.id,
                error=repr(error),
            )
            return False
        self._failure_count = 0
        return True

    def _pause_s(self, granted_s: float) -> float:
        """Before the next try: none, unless the last one failed or the session is idle."""
        if self._is_idle():
            return granted_s / 8
        if self._failure_count == 0:
            return 0.0
        backoff_s = RECONNECT.delay_s(self._failure_count, self._clock.chance())
        return min(backoff_s, granted_s / 8)

    def _is_idle(self) -> bool:
        idle_s = self._clock.now_s() - self._called_at_s
        return self._call_count == 0 and idle_s >= self._idle_after_s

    def _end_s(self) -> float:
        end_s = self._port.lock_expires_at_s
        return inf if end_s is None else end_s

    def _left_s(self) -> float:
        return 0.0 if self._is_lost else self._end_s() - self._clock.now_s()

    def _lose(self) -> None:
        if not self._is_lost:
            self._is_lost = True
            _log.warning(vocabulary.SESSION_LOST, queue=self._queue, session=self._port.id)


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
        self._copied: WeakKeyDictionary[Delivery, Copied] = WeakKeyDictionary()
        """Rejects whose copy is made, while their original could not be removed yet."""
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
        not in flight any more. A call that fails once its copy is made is made again to remove the
        original: without a second copy, and with the first reason.
        """
        rejection = rejection_of(reason, detail)
        self._require_open()
        with self._telling_loss():
            self._lock.require()
            self._successors(delivery)
            self._rejecting.add(delivery)
            try:
                await self._hold()
                if (copied := self._copied.get(delivery)) is None:
                    routed = await self._route(delivery, rejection)
                    if (copied := Copied.by(rejection, routed)) is not None:
                        self._copied[delivery] = copied
                else:
                    rejection, routed = copied.rejection, copied.routed
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
