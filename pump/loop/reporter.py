"""Reporter: counts what became of messages, and tells observers and the log."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..clock import SYSTEM_CLOCK, Clock
from ..events import BestEffortOrderEvent, Event, LeaseLostEvent
from ..message import Delivery
from ..observability import vocabulary
from ..observability.log import get_logger
from ..observability.telemetry import Telemetry
from ..outcome import INVALID_REASONS, Ack, Defer, Reason, Reject
from ..sealing import Sealing
from ..subscription import Subscription
from .ending import Ending, outcome_event, status_of
from .lines import DeliveryLines
from .stats import PumpStats

_log = get_logger("pump.loop")


class Reporter:
    """Tells the story of one pump; builds nothing that nobody listens to."""

    def __init__(
        self,
        subscription: Subscription,
        stats: PumpStats,
        emit: Callable[[Event], None] | None,
        *,
        telemetry: Telemetry | None = None,
        sealing: Sealing | None = None,
        gateway: str | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._lines = DeliveryLines(subscription.name, gateway=gateway, clock=clock)
        self._subscription = subscription
        self._stats = stats
        self._emit = emit
        self._telemetry = telemetry
        self._sealing = sealing

    def started(self) -> None:
        """The pump is about to receive."""
        subscription = self._subscription
        _log.info(vocabulary.PUMP_STARTED, subscription=subscription.name, queue=subscription.queue)
        if subscription.dead_letter_queue is None:
            _log.warning(
                vocabulary.DEAD_LETTER_MISSING,
                subscription=subscription.name,
                remedy="set dead_letter_queue: messages that keep failing will be discarded",
            )
        if not subscription.ordering_guarantee:
            detail = "messages may be handled out of order; ordering_guarantee=True forbids it"
            _log.debug(vocabulary.ORDER_BEST_EFFORT, subscription=subscription.name, detail=detail)
            if self._emit is not None:
                self._emit(
                    BestEffortOrderEvent(
                        queue=subscription.queue, subscription=subscription.name, detail=detail
                    )
                )

    def drain_expired(self, recalled_count: int) -> None:
        """Handlers did not finish in time and were cancelled."""
        _log.warning(
            vocabulary.DRAIN_EXPIRED, subscription=self._subscription.name, recalled=recalled_count
        )

    def flush_expired(self, unsettled_count: int) -> None:
        """The broker would not settle these; it will deliver them again."""
        _log.error(
            vocabulary.FLUSH_EXPIRED,
            subscription=self._subscription.name,
            unsettled=unsettled_count,
        )

    def drained(self) -> None:
        """The pump has stopped, and nothing is left in its hands."""
        _log.info(vocabulary.PUMP_DRAINED, subscription=self._subscription.name)

    def settled(self, endings: Sequence[Ending]) -> None:
        """The broker confirmed these."""
        stats = self._stats
        stats.run_times.observe(endings)
        if self._telemetry is not None:
            self._telemetry.settled(self._subscription, endings)
        if self._sealing is not None:
            self._tell_sealing(endings, self._sealing)
        for ending in endings:
            match ending.outcome:
                case Ack():
                    stats.processed += 1
                case Reject(reason=reason):
                    self._count_rejection(ending, reason)
                case Defer():
                    stats.retried += 1
                case _:
                    stats.released += 1
        if self._emit is not None:
            for ending in endings:
                self._tell(ending, self._emit)
        self._lines.write(endings)

    def lost(self, delivery: Delivery) -> None:
        """A lease ended before its message was settled."""
        self._stats.leases_lost += 1
        if self._telemetry is not None:
            self._telemetry.lost(self._subscription, delivery)
        name = self._subscription.name
        _log.warning(
            vocabulary.LEASE_LOST,
            subscription=name,
            queue=delivery.queue,
            message_id=delivery.message.id,
            attempt=delivery.attempt,
        )
        if self._emit is not None:
            self._emit(
                LeaseLostEvent(
                    message_id=delivery.message.id,
                    queue=delivery.queue,
                    subscription=name,
                    attempt=delivery.attempt,
                )
            )

    def _tell_sealing(self, endings: Sequence[Ending], sealing: Sealing) -> None:
        for ending in endings:
            if isinstance(ending.action, Ack):
                sealing.settled(ending.delivery, is_handled=isinstance(ending.outcome, Ack))

    def _count_rejection(self, ending: Ending, reason: Reason) -> None:
        if not isinstance(ending.action, Ack):
            self._stats.retried += 1
        elif reason in INVALID_REASONS:
            self._stats.invalid += 1
        else:
            self._stats.dead_lettered += 1

    def _tell(self, ending: Ending, emit: Callable[[Event], None]) -> None:
        status = status_of(ending)
        if status is not None:
            emit(outcome_event(ending, status, self._subscription.name))
