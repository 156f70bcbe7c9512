"""Queue: handles what came from one subscription's queue, event after event."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import attrs

from ..errors import GatewayError, PumpError, UnacceptableLimitReached
from ..loop.batch import Batch
from ..loop.processing import DeliveryResult, Orders, is_unacceptable
from ..loop.pump import UnacceptableCount
from ..loop.reporting import PumpStats
from ..message import Delivery
from ..observability import vocabulary
from ..observability.log import get_logger
from ..outcome import Ack, Defer, Refusal
from ..ports import PushedRecord, PushGateway
from ..runtime import Runtime
from ..subscription import OnRoutingFailure, Subscription

_log = get_logger("pump.lambda")


def refuse(records: Sequence[PushedRecord], *, error: str, remedy: str) -> None:
    """Say that records of one queue are not handled, and what to do; they come again."""
    _log.error(
        vocabulary.RECORDS_REFUSED,
        queue=records[0].source,
        count=len(records),
        error=error,
        remedy=remedy,
    )


@attrs.frozen(eq=False)
class _OrdersFor:
    """What the worker of a delivery was told, for the same delivery with its body fetched."""

    delivery: Delivery
    orders: Orders

    @property
    def is_dismissed(self) -> bool:
        return self.orders.is_dismissed

    def is_recalled(self, _: Delivery) -> bool:
        return self.orders.is_recalled(self.delivery)

    def is_told_to_stop(self, _: Delivery) -> bool:
        return self.orders.is_told_to_stop(self.delivery)

    async def shed_strays(self) -> None:
        await self.orders.shed_strays()


@attrs.define(eq=False)
class Handled:
    """What became of one queue's records of one event, on its way to the provider and the log."""

    results: list[DeliveryResult] = attrs.field(factory=list)
    lost: list[Delivery] = attrs.field(factory=list)


class PushedQueue:
    """One subscription's port, router and counts, for as long as the app is open."""

    def __init__(
        self,
        runtime: Runtime,
        gateway: PushGateway,
        subscription: Subscription,
        *,
        is_spill_durable: bool,
    ) -> None:
        self._runtime = runtime
        self._clock = runtime.clock
        self._telemetry = runtime.telemetry
        self.subscription = subscription
        self._port = gateway.push_port(subscription)
        self._router = runtime.router(_routed(subscription, is_spill_durable=is_spill_durable))
        self._process = runtime.delivery_processor(subscription, self._router)
        self.stats = PumpStats()
        self._reporter = runtime.reporter(subscription, self.stats)
        self._are_channels_made = False
        self._unacceptable = UnacceptableCount(subscription.unacceptable_limit)
        self._closed_until_s = 0.0
        self._in_flight = 0
        if self._telemetry is not None:
            self._telemetry.watching(subscription, lambda: self._in_flight)

    async def handle(
        self,
        records: Sequence[PushedRecord],
        *,
        on_done: Callable[[PushedRecord], None],
        lease_s: float,
        limit_s: float | None,
    ) -> Handled:
        """Have the records handled until `limit_s` are over; `on_done` is told of each whose
        message will not be needed again. What is in no such call is to come again.
        """
        handled = Handled()
        started_s = self._clock.now_s()
        if not await self._is_ready(records, limit_s):
            return handled
        if limit_s is not None:
            limit_s = max(0.0, limit_s - (self._clock.now_s() - started_s))
        by_delivery = {self._port.read(each, lease_s=lease_s): each for each in records}
        self.stats.received += len(by_delivery)
        self._in_flight = len(by_delivery)
        if self._telemetry is not None:
            self._telemetry.received(self.subscription, list(by_delivery), waited_s=None)

        def told(delivery: Delivery, result: DeliveryResult | None) -> None:
            if result is None:
                handled.lost.append(delivery)
                return
            handled.results.append(result)
            if isinstance(result.action, Ack):
                on_done(by_delivery[delivery])
            if is_unacceptable(result) and self._is_too_much():
                batch.give_back_unstarted()

        batch = Batch(
            self._process_fetched,
            told,
            concurrency=self.subscription.concurrency,
            single_lane=self.subscription.ordering_guarantee,
            clock=self._clock,
        )
        await batch.run(list(by_delivery), limit_s=limit_s)
        return handled

    async def settle(self, handled: Handled, *, is_answered: bool, limit_s: float | None) -> None:
        """Tell the provider as much as can be told in `limit_s`, then the observers and the log.

        Never raises for the provider's sake: what it was not told comes again by itself when its
        lease ends.
        """
        unsettled_count = len(handled.results)
        try:
            async with self._clock.timeout(limit_s):
                for results in self._slices(handled.results):
                    await self._tell_provider(results, is_answered=is_answered)
                    unsettled_count -= len(results)
        except TimeoutError:
            self._reporter.flush_expired(unsettled_count)
        self._in_flight = 0
        self._reporter.settled(handled.results)
        for delivery in handled.lost:
            self._reporter.lost(delivery)

    async def aclose(self) -> None:
        """Close the port and the router."""
        try:
            await self._port.aclose()
        finally:
            await self._router.aclose()

    async def _is_ready(self, records: Sequence[PushedRecord], limit_s: float | None) -> bool:
        if self._clock.now_s() < self._closed_until_s:
            remedy = "look at its invalid-message queue; the function tries again by itself"
            refuse(records, error=str(self._limit_reached()), remedy=remedy)
            return False
        if self._are_channels_made:
            return True
        try:
            async with self._clock.timeout(limit_s):
                await self._runtime.make_channels(self.subscription)
        except (PumpError, TimeoutError) as error:
            remedy = "let the function's role do this, or set make_channels=MakeChannels.ASSUME"
            refuse(records, error=repr(error), remedy=remedy)
            return False
        self._are_channels_made = True
        self._reporter.started()
        return True

    async def _process_fetched(self, delivery: Delivery, orders: Orders) -> DeliveryResult | None:
        # Fetched when it starts: a batch of thousands must not be in memory with all its bodies.
        fetched = await self._port.fetch(delivery)
        if isinstance(fetched, Defer):
            return DeliveryResult(delivery, fetched, fetched)
        return await self._process(fetched, _OrdersFor(delivery, orders))

    async def _tell_provider(self, results: Sequence[DeliveryResult], *, is_answered: bool) -> None:
        try:
            refusals = await self._settle(results, is_answered=is_answered)
        except GatewayError as error:
            _log.warning(vocabulary.SETTLE_FAILED, error=repr(error), count=len(results))
            return
        if refusals:
            first = refusals[0].error
            _log.warning(vocabulary.SETTLE_FAILED, error=repr(first), count=len(refusals))

    async def _settle(
        self, results: Sequence[DeliveryResult], *, is_answered: bool
    ) -> Sequence[Refusal]:
        if self._telemetry is None:
            return await self._port.settle(results, is_answered=is_answered)
        with self._telemetry.settling(self.subscription, results):
            return await self._port.settle(results, is_answered=is_answered)

    def _slices(self, results: Sequence[DeliveryResult]) -> list[Sequence[DeliveryResult]]:
        """As many at once as the provider likes, those first that were asked to wait."""
        ordered = sorted(results, key=lambda each: not isinstance(each.action, Defer))
        capabilities = self._runtime.gateway.capabilities
        size = capabilities.settle_batch * capabilities.max_settle_calls
        return [ordered[start : start + size] for start in range(0, len(ordered), size)]

    def _is_too_much(self) -> bool:
        limit = self.subscription.unacceptable_limit
        now_s = self._clock.now_s()
        if limit is None or not self._unacceptable.is_reached(now_s):
            return False
        # A function cannot stop for good: it lets a window pass, and then tries again.
        self._closed_until_s = now_s + limit.window.total_seconds()
        _log.error(
            vocabulary.PUMP_STOPPED,
            subscription=self.subscription.name,
            error=str(self._limit_reached()),
        )
        return True

    def _limit_reached(self) -> UnacceptableLimitReached:
        limit = self.subscription.unacceptable_limit
        assert limit is not None
        return UnacceptableLimitReached(
            self.subscription.name, limit.count, limit.window.total_seconds()
        )


def _routed(subscription: Subscription, *, is_spill_durable: bool) -> Subscription:
    """The subscription as its router sees it: a disk that ends with the function keeps nothing."""
    if is_spill_durable or subscription.on_routing_failure is not OnRoutingFailure.SPILL:
        return subscription
    return attrs.evolve(subscription, on_routing_failure=OnRoutingFailure.KEEP)
