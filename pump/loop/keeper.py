"""Keeper: one heartbeat for every lease in hand."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence

from ..backoff import RECONNECT
from ..clock import Clock, breathe
from ..errors import GatewayError, text_of
from ..message import Delivery
from ..observability import vocabulary
from ..observability.log import get_logger
from ..observability.telemetry import Telemetry
from ..ports import ConsumerPort, LeaseLosingPort
from ..subscription import Subscription
from .leases import LeaseBook

_log = get_logger("pump.loop")


class LeaseKeeper:
    """Extends leases from receipt until settlement, in batches, and reports those lost.

    A lease is lost when the broker says so, when the connection is lost that it ended with, or
    when its end passes without a confirmed extension: from then on nothing proves that the
    message is still ours.
    """

    def __init__(
        self,
        book: LeaseBook,
        port: ConsumerPort,
        subscription: Subscription,
        *,
        batch: int,
        clock: Clock,
        on_lost: Callable[[Delivery], None],
        telemetry: Telemetry | None = None,
    ) -> None:
        self._book = book
        self._port = port
        self._subscription = subscription
        self._lease_s = subscription.lease.total_seconds()
        self._batch = batch
        self._clock = clock
        self._on_lost = on_lost
        self._telemetry = telemetry
        self._first_arrived = asyncio.Event()
        self._failure_count = 0
        if isinstance(port, LeaseLosingPort):
            port.when_lost(self._lose_all)

    def watch(self, deliveries: Iterable[Delivery]) -> None:
        """Keep the leases of received messages."""
        self._book.watch(deliveries)
        self._first_arrived.set()

    def forget(self, delivery: Delivery) -> bool:
        """Stop keeping a settled message's lease; False when it was lost before."""
        return self._book.forget(delivery)

    def holds(self, delivery: Delivery) -> bool:
        """Whether the lease is still ours, as far as we know."""
        return delivery in self._book

    async def hold(self, delivery: Delivery) -> bool:
        """Whether the lease is ours, proved by an extension unless it was granted just now.

        Before a copy is routed: a process that stood still, or a broker that counts otherwise,
        may have given the message to another consumer. Also for a subscription that does not
        renew: the message is about to be removed. An extension that fails has not said no.
        """
        if self._book.is_fresh(delivery, self._clock.now_s()):
            return True
        self._report_expired()
        if self.holds(delivery):
            await self._extend([delivery])
            self._report_expired()
        if self.holds(delivery):
            return True
        # Recalled just now, by our own task: the cancellation arrives here, and not in whatever
        # the worker does next.
        await breathe()
        return False

    async def run(self) -> None:
        """Keep leases until cancelled."""
        while True:
            wake_at_s = self._book.wake_at_s(self._clock.now_s())
            if wake_at_s is None:
                self._first_arrived.clear()
                await self._first_arrived.wait()
                continue
            # After a failure the most urgent lease is overdue, and the backoff sets the pace.
            pause_s = max(wake_at_s - self._clock.now_s(), self._pause_after_failure_s())
            await self._clock.sleep(pause_s)
            await self._extend_due()
            self._report_expired()

    async def _extend_due(self) -> None:
        due = self._book.due(self._clock.now_s())
        for start in range(0, len(due), self._batch):
            held = [
                delivery for delivery in due[start : start + self._batch] if self.holds(delivery)
            ]
            if held:
                await self._extend(held)
            # Between batches too: with calls that hang, the last one comes leases later.
            self._report_expired()

    async def _extend(self, deliveries: Sequence[Delivery]) -> None:
        asked_at_s = self._clock.now_s()
        try:
            # A reply that never comes must not keep the other leases waiting.
            async with self._clock.timeout(self._lease_s / 4):
                refusals = await self._port.extend(deliveries, lease_s=self._lease_s)
        except (GatewayError, TimeoutError) as error:
            self._failure_count += 1
            _log.warning(vocabulary.LEASE_EXTENSION_FAILED, error=text_of(error, repr))
            if self._telemetry is not None:
                self._telemetry.failed("extend", self._subscription.queue, error)
            return
        if self._telemetry is not None:
            self._telemetry.extended(self._subscription, len(deliveries) - len(refusals))
        refused = {refusal.delivery: refusal for refusal in refusals}
        is_whole = all(refusal.is_final for refusal in refusals)
        self._failure_count = 0 if is_whole else self._failure_count + 1
        for delivery in deliveries:
            if delivery not in refused:
                self._book.extended(delivery, asked_at_s)
            elif refused[delivery].is_final:
                self._lose(delivery)

    def _report_expired(self) -> None:
        for delivery in self._book.expired(self._clock.now_s()):
            self._lose(delivery)

    def _lose_all(self, deliveries: Iterable[Delivery]) -> None:
        for delivery in deliveries:
            self._lose(delivery)

    def _lose(self, delivery: Delivery) -> None:
        if self._book.forget(delivery):
            self._on_lost(delivery)

    def _pause_after_failure_s(self) -> float:
        if self._failure_count == 0:
            return 0.0
        backoff_s = RECONNECT.delay_s(self._failure_count, self._clock.chance())
        return min(backoff_s, self._lease_s / 8)
