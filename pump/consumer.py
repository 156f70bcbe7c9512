"""Consumer: one queue by hand, for those who want no pump. The pump uses the same parts.

| a delivery is | when                                                   | and then                |
|---------------|--------------------------------------------------------|-------------------------|
| in flight     | it was received here, or handed in from elsewhere      | may be settled          |
| being settled | a call has begun to settle it                          | other calls are refused |
| in flight     | that call failed, and the broker may not know of it    | may be settled again    |
| settled       | the broker confirmed it                                | every call is refused   |
| lost          | the broker refused it for good, or its lease has ended | every call is refused   |
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import contextmanager
from datetime import timedelta
from math import inf, isfinite
from typing import Any, overload
from weakref import WeakKeyDictionary

import attrs

from .clock import Clock
from .errors import GatewayError, InvalidReceipt, text_of
from .loop.processing import result_by_hand
from .loop.reporting import Reporter
from .mapping import Mapper
from .message import Delivery, Message
from .observability import vocabulary
from .observability.log import get_logger
from .outcome import ABANDON, ACK, Action, Defer, Outcome, Reason, Reject, RejectionReason
from .ports import ConsumerPort, PayloadEncryption
from .rejection import Copied, RejectionRouter, Routed, rejection_of
from .session import Session, Sessions
from .subscription import Subscription
from .tasks import run_while_held

_log = get_logger("pump.consumer")
_LONG_S = timedelta(days=1).total_seconds()
_WAIT = timedelta(seconds=20)
"""How long one receive of an iteration waits where the subscription's would not wait at all."""


@attrs.define(eq=False)
class _InFlight:
    """What this consumer knows of a delivery."""

    received_at_s: float
    ends_at_s: float
    """When the lease ends, as far as we know; infinite for a delivery from elsewhere."""
    is_being_settled: bool = False
    is_gone: bool = False
    """Settled or lost: not ours any more."""
    copied: Copied | None = None
    """The reject whose copy is made, while its original could not be removed yet."""


class Consumer:
    """Receives and settles; every settlement is awaited and its refusal raised.

    Leases are not renewed by themselves here: call `extend`. Observers, the ledger, telemetry and
    the log are told as by the pump. Open one with `App.consumer`.
    """

    def __init__(
        self,
        port: ConsumerPort,
        subscription: Subscription,
        router: RejectionRouter,
        sessions: Sessions,
        mapper: Mapper,
        *,
        reporter: Reporter,
        clock: Clock,
        encryption: PayloadEncryption | None = None,
    ) -> None:
        self._port = port
        self._subscription = subscription
        self._router = router
        self._sessions = sessions
        self._mapper = mapper
        self._reporter = reporter
        self._clock = clock
        self._encryption = encryption
        self._lease_s = subscription.lease.total_seconds()
        # Weak: what the caller has let go of cannot be settled any more, and is not remembered.
        self._in_flight: WeakKeyDictionary[Delivery, _InFlight] = WeakKeyDictionary()

    @property
    def subscription(self) -> Subscription:
        """What this consumer consumes, and how."""
        return self._subscription

    async def receive(self, max_count: int = 1, *, wait: timedelta | None = None) -> list[Delivery]:
        """Up to `max_count` deliveries as soon as there is one; an empty list after `wait`."""
        wait = self._subscription.wait if wait is None else wait
        received = await self._port.receive(max_count=max_count, wait_s=wait.total_seconds())
        deliveries, now_s = list(received), self._clock.now_s()
        for delivery in deliveries:
            self._in_flight[delivery] = _InFlight(now_s, delivery.lease_expires_at_s)
        return deliveries

    def __aiter__(self) -> AsyncIterator[Delivery]:
        """One delivery after the other, without an end: `deliveries()`."""
        return self.deliveries()

    async def deliveries(
        self, *, max_count: int = 1, idle: timedelta | None = None
    ) -> AsyncGenerator[Delivery]:
        """One delivery after the other; ends when nothing came for `idle`, by default never.

        Receives when the one before was used up, `max_count` at once. Those that were received
        and not yet given out are abandoned when the iteration is closed or cancelled (leave an
        `async for` by `break`, and that is at the end of `contextlib.aclosing`). What was given
        out is the caller's to settle.
        """
        unread: list[Delivery] = []
        try:
            while True:
                unread = await self._received_within(max_count, idle)
                if not unread:
                    return
                while unread:
                    yield unread.pop(0)
        finally:
            for delivery in unread:
                await self._hand_back(delivery)

    async def _received_within(self, max_count: int, idle: timedelta | None) -> list[Delivery]:
        """What comes next; nothing when `idle` has passed."""
        until_s = inf if idle is None else self._clock.now_s() + idle.total_seconds()
        while True:
            left_s = min(until_s - self._clock.now_s(), _LONG_S)
            wait = min(self._subscription.wait or _WAIT, timedelta(seconds=max(0.0, left_s)))
            deliveries = await self.receive(max_count, wait=wait)
            if deliveries or self._clock.now_s() >= until_s:
                return deliveries

    async def _hand_back(self, delivery: Delivery) -> None:
        """Abandon what was not given out. One that cannot be has gone, or comes again when its
        lease ends: for the caller there is nothing to do.
        """
        try:
            await self.abandon(delivery)
        except InvalidReceipt:
            pass  # It was too long unread, and that is reported.
        except GatewayError as error:
            _log.warning(vocabulary.SETTLE_FAILED, error=text_of(error, repr), count=1)

    async def open(self, delivery: Delivery) -> Message:
        """The message as it was sent: decrypted, where the app encrypts.

        The delivery keeps it as it arrived, so that `reject` routes it still encrypted. Raises
        `CryptoError`; what cannot be decrypted is best rejected as UNACCEPTABLE.
        """
        if self._encryption is None:
            return delivery.message
        return await self._encryption.decrypt(delivery)

    async def read(self, delivery: Delivery) -> Any:
        """The request that the message carries, decrypted and decoded. Raises `CryptoError` or
        `MappingError`.
        """
        return self._mapper.read(await self.open(delivery), self._subscription)

    async def ack(self, delivery: Delivery) -> None:
        """Remove the message for good. `InvalidReceipt` when it is no longer ours."""
        await self._settle(delivery, ACK)

    async def defer(self, delivery: Delivery, delay: timedelta = timedelta(0)) -> None:
        """Have it delivered again after `delay`."""
        await self._settle(delivery, Defer(delay.total_seconds()))

    async def abandon(self, delivery: Delivery) -> None:
        """Hand it back untried, available at once."""
        await self._settle(delivery, ABANDON)

    async def reject(
        self,
        delivery: Delivery,
        reason: Reason = RejectionReason.DELIVERY_ERROR,
        detail: str = "",
    ) -> Routed:
        """Route a copy, with its reason, to the dead-letter or invalid queue, then remove the
        original; return what became of it (`Routed.fate`).

        Only what is ours is copied: the lease is extended first, and kept while the copy is on
        its way. `InvalidReceipt`, and no copy, when the delivery was settled here, is being
        settled, or its lease is over. What happens when the copy cannot be sent:
        `Subscription.on_routing_failure`. A reason or detail that is not text is refused
        (`ConfigurationError`) before anything happens.

        A call that fails once its copy is made is made again to remove the original: without a
        second copy, and with the first reason.
        """
        rejection = rejection_of(reason, detail)
        with self._settling(delivery) as held:
            await self._hold(delivery, held)
            if held.copied is None:
                routed = await self._route(delivery, held, rejection)
                held.copied = Copied.by(rejection, routed)
            else:
                rejection, routed = held.copied.rejection, held.copied.routed
            await self._tell_broker(delivery, held, routed.action, rejection, routed)
        return routed

    async def extend(self, delivery: Delivery, lease: timedelta | None = None) -> None:
        """Keep the message for another `lease` from now. `InvalidReceipt` when it is not ours."""
        lease_s = self._lease_s if lease is None else lease.total_seconds()
        held = self._known(delivery)
        # Refused while another call settles it, it may well be that call that has removed it.
        await self._extend(delivery, held, lease_s, is_loss=not held.is_being_settled)

    @overload
    async def accept_session(self, session: str, *, wait: timedelta | None = None) -> Session: ...

    @overload
    async def accept_session(
        self, session: None = None, *, wait: timedelta | None = None
    ) -> Session | None: ...

    async def accept_session(
        self, session: str | None = None, *, wait: timedelta | None = None
    ) -> Session | None:
        """Lock the messages of one group for this consumer alone; close the session to let go.

        By its id: raises `SessionLocked` while another consumer holds it, after `wait` (at once
        by default). Without one: the next free session that has messages, and None when there
        was none for `wait` (the subscription's by default). `UnsupportedOperation` where the
        provider has no sessions, or does not let us choose one.
        """
        if wait is None:
            wait = self._subscription.wait if session is None else timedelta(0)
        return await self._sessions.accept(session, wait.total_seconds())

    async def aclose(self) -> None:
        """Let go; what was not settled becomes available again when its lease ends. Sessions
        that were left open are closed.
        """
        try:
            await self._sessions.aclose()
        finally:
            try:
                await self._port.aclose()
            finally:
                await self._router.aclose()

    async def _settle(self, delivery: Delivery, action: Action) -> None:
        with self._settling(delivery) as held:
            await self._tell_broker(delivery, held, action, action)

    async def _tell_broker(
        self,
        delivery: Delivery,
        held: _InFlight,
        action: Action,
        outcome: Outcome,
        routed: Routed | None = None,
    ) -> None:
        run_s = self._clock.now_s() - held.received_at_s
        result = result_by_hand(delivery, action, outcome, run_s=run_s, routed=routed)
        for refusal in await self._port.settle([result]):
            if refusal.is_final:
                self._lose(delivery, held)
            raise refusal.error
        held.is_gone = True
        self._reporter.settled([result])

    def _known(self, delivery: Delivery) -> _InFlight:
        """What we know of it. Of one that another consumer or process received we know nothing:
        the broker says whether it is ours.
        """
        held = self._in_flight.get(delivery)
        if held is None:
            held = self._in_flight[delivery] = _InFlight(self._clock.now_s(), inf)
        return held

    @contextmanager
    def _settling(self, delivery: Delivery) -> Iterator[_InFlight]:
        """Settle what is in flight, one call at a time: the second one is refused at once."""
        held = self._known(delivery)
        if held.is_gone or held.is_being_settled:
            raise InvalidReceipt(delivery.queue, delivery.receipt)
        held.is_being_settled = True
        try:
            yield held
        finally:
            held.is_being_settled = False

    async def _hold(self, delivery: Delivery, held: _InFlight) -> None:
        """Have the broker say that it is ours, for a lease from now; `InvalidReceipt` if not.

        A broker that does not answer, or may not be asked, has not said no: then our own deadline
        counts, where we have one.
        """
        self._require_time(delivery, held)
        left_s = held.ends_at_s - self._clock.now_s()
        try:
            # Never shortened: the caller may have extended it by more than a lease.
            lease_s = max(self._lease_s, left_s) if isfinite(left_s) else self._lease_s
            async with self._clock.timeout(self._lease_s / 4):
                await self._extend(delivery, held, lease_s, is_loss=True)
        except (GatewayError, TimeoutError) as error:
            if held.is_gone or not isfinite(held.ends_at_s):
                raise
            _log.warning(
                vocabulary.LEASE_EXTENSION_FAILED,
                queue=delivery.queue,
                message_id=delivery.message.id,
                error=repr(error),
            )
        self._require_time(delivery, held)

    def _require_time(self, delivery: Delivery, held: _InFlight) -> None:
        if self._clock.now_s() >= held.ends_at_s:
            self._lose(delivery, held)
            raise InvalidReceipt(delivery.queue, delivery.receipt)

    async def _extend(
        self, delivery: Delivery, held: _InFlight, lease_s: float, *, is_loss: bool
    ) -> None:
        asked_at_s = self._clock.now_s()
        for refusal in await self._port.extend([delivery], lease_s=lease_s):
            if refusal.is_final and is_loss:
                self._lose(delivery, held)
            raise refusal.error
        held.ends_at_s = asked_at_s + lease_s

    async def _route(self, delivery: Delivery, held: _InFlight, rejection: Reject) -> Routed:
        """Route the copy, and keep the lease meanwhile. Once it is lost, routing is cancelled."""
        return await run_while_held(
            self._router.route(delivery, rejection.reason, rejection.detail),
            lambda: self._hold(delivery, held),
            every_s=self._lease_s / 2,
            clock=self._clock,
            name="reject",
        )

    def _lose(self, delivery: Delivery, held: _InFlight) -> None:
        if not held.is_gone:
            held.is_gone = True
            self._reporter.lost(delivery)
