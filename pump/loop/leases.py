"""Leases: the book of what is held and until when. `LeaseBook` is pure; `LeaseKeeper` acts on it.

| a lease is  | when                                        | and then                     |
|-------------|---------------------------------------------|------------------------------|
| held        | from receipt                                |                              |
| due         | half of it is over and it may be extended   | the keeper extends it        |
| expired     | its end has passed                          | lost: the handler is told    |
| forgotten   | its message was settled                     |                              |
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence

from ..backoff import RECONNECT
from ..clock import Clock, yield_to_loop
from ..errors import GatewayError, text_of
from ..message import Delivery
from ..observability import vocabulary
from ..observability.log import get_logger
from ..observability.telemetry import Telemetry
from ..ports import ConsumerPort, LeaseLosingPort
from ..subscription import Subscription


class LeaseBook:
    """Every lease in flight. Ends come in rising order, so the first entry is the most urgent."""

    def __init__(self, *, lease_s: float, renew: bool, max_lease_s: float | None) -> None:
        self._lease_s = lease_s
        self._renew = renew
        self._max_lease_s = max_lease_s
        self._ends: dict[Delivery, float] = {}
        self._last_end_s = 0.0
        self._is_sorted = True

    def __len__(self) -> int:
        return len(self._ends)

    def __contains__(self, delivery: Delivery) -> bool:
        return delivery in self._ends

    def held(self) -> list[Delivery]:
        """Everything in the book."""
        return list(self._ends)

    def watch(self, deliveries: Iterable[Delivery]) -> None:
        """Enter received messages."""
        ends, last_end_s = self._ends, self._last_end_s
        for delivery in deliveries:
            end_s = delivery.lease_expires_at_s
            if end_s < last_end_s:
                self._is_sorted = False
            ends[delivery] = last_end_s = end_s
        self._last_end_s = last_end_s

    def forget(self, delivery: Delivery) -> bool:
        """Strike a message out; False when it was not held any more."""
        return self._ends.pop(delivery, None) is not None

    def is_fresh(self, delivery: Delivery, now_s: float) -> bool:
        """Whether the broker granted it within the last tenth of a lease: it need not be asked."""
        return self._ends.get(delivery, 0.0) - now_s >= self._lease_s * 0.9

    def extended(self, delivery: Delivery, now_s: float) -> None:
        """Note that the broker granted a whole lease from `now_s`."""
        if delivery in self._ends:
            del self._ends[delivery]
            end_s = now_s + self._lease_s
            if end_s < self._last_end_s:
                self._is_sorted = False
            self._ends[delivery] = self._last_end_s = end_s

    def due(self, now_s: float) -> list[Delivery]:
        """Those to extend now, with those that would be due within a tenth of a lease:
        one request for all of them is cheaper than a trickle.
        """
        horizon_s = now_s + self._lease_s * 0.1
        return [
            delivery
            for delivery in self._first_until(self._due_end_s(horizon_s))
            if self._may_extend(delivery, now_s)
        ]

    def expired(self, now_s: float) -> list[Delivery]:
        """Those whose end has passed."""
        return self._first_until(now_s)

    def is_over(self, delivery: Delivery, now_s: float) -> bool:
        """Whether its end has passed, or it is not held at all."""
        end_s = self._ends.get(delivery)
        return end_s is None or end_s <= now_s

    def wake_at_s(self, now_s: float) -> float | None:
        """When to look again, None when nothing is held."""
        self._sort()
        wake_s: float | None = None
        for delivery, end_s in self._ends.items():
            wake_s = end_s if wake_s is None else wake_s
            if self._may_extend(delivery, now_s):
                return min(wake_s, end_s - self._lease_s / 2)
            if not self._renew:
                break
        return wake_s

    def _first_until(self, end_s: float) -> list[Delivery]:
        self._sort()
        found = []
        for delivery, ends_s in self._ends.items():
            if ends_s > end_s:
                break
            found.append(delivery)
        return found

    def _sort(self) -> None:
        if not self._is_sorted:
            self._ends = dict(sorted(self._ends.items(), key=lambda entry: entry[1]))
            self._last_end_s = next(reversed(self._ends.values()), 0.0)
            self._is_sorted = True

    def _due_end_s(self, now_s: float) -> float:
        return now_s + self._lease_s / 2

    def _may_extend(self, delivery: Delivery, now_s: float) -> bool:
        if not self._renew:
            return False
        if self._max_lease_s is None:
            return True
        received_at_s = delivery.lease_expires_at_s - self._lease_s
        return now_s + self._lease_s <= received_at_s + self._max_lease_s


# Keeper: one heartbeat for every lease in flight.

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
        await yield_to_loop()
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
