"""Consumer: one queue by hand, for those who want no pump. The pump uses the same parts."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, overload

from .loop.ending import Ending
from .mapping import Mapper
from .message import Delivery, Message
from .observability.telemetry import Telemetry
from .outcome import ABANDON, ACK, Ack, Action, Defer, Reject, RejectionReason, Settlement
from .ports import ConsumerPort
from .rejection import Reason, RejectionRouter
from .sealing import Sealing
from .session import Session, Sessions
from .subscription import Subscription


class Consumer:
    """Receives and settles; every settlement is awaited and its refusal raised.

    Leases are not renewed by themselves here: call `extend`. Open one with `App.consumer`.
    """

    def __init__(
        self,
        port: ConsumerPort,
        subscription: Subscription,
        router: RejectionRouter,
        sessions: Sessions,
        mapper: Mapper,
        sealing: Sealing | None = None,
        telemetry: Telemetry | None = None,
    ) -> None:
        self._port = port
        self._subscription = subscription
        self._router = router
        self._sessions = sessions
        self._mapper = mapper
        self._sealing = sealing
        self._telemetry = telemetry

    @property
    def subscription(self) -> Subscription:
        """What this consumer consumes, and how."""
        return self._subscription

    async def receive(
        self, max_count: int = 1, *, wait: timedelta | None = None
    ) -> Sequence[Delivery]:
        """Up to `max_count` deliveries as soon as there is one; none after `wait`."""
        wait = self._subscription.wait if wait is None else wait
        return await self._port.receive(max_count=max_count, wait_s=wait.total_seconds())

    async def open(self, delivery: Delivery) -> Message:
        """The message as it was sent: opened, where the app encrypts.

        In hand it stays as it arrived, so that `reject` routes it still sealed. Raises
        `CryptoError`; what cannot be opened is best rejected as UNACCEPTABLE.
        """
        if self._sealing is None:
            return delivery.message
        return await self._sealing.unseal(delivery)

    async def read(self, delivery: Delivery) -> Any:
        """The request that the message carries, opened and decoded. Raises `CryptoError` or
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
    ) -> None:
        """Route a copy, with its reason, to the dead-letter or invalid queue, then remove the
        original. What happens when the copy cannot be sent: `Subscription.on_routing_failure`.
        """
        routed = await self._router.route(delivery, reason, detail)
        await self._settle(delivery, routed.action, is_handled=False)

    async def extend(self, delivery: Delivery, lease: timedelta | None = None) -> None:
        """Keep the message for another `lease` from now. `InvalidReceipt` when it is not ours."""
        lease = self._subscription.lease if lease is None else lease
        for refusal in await self._port.extend([delivery], lease_s=lease.total_seconds()):
            raise refusal.error

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

    async def _settle(self, delivery: Delivery, action: Action, *, is_handled: bool = True) -> None:
        for refusal in await self._port.settle([Settlement(delivery, action)]):
            raise refusal.error
        if self._sealing is not None and isinstance(action, Ack):
            self._sealing.settled(delivery, is_handled=is_handled)
        if self._telemetry is not None:
            outcome = action if is_handled else Reject(RejectionReason.DELIVERY_ERROR)
            self._telemetry.settled(self._subscription, [Ending(delivery, action, outcome)])
