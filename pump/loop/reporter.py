"""Reporter: counts what became of messages, and tells observers and the log."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..events import BestEffortOrderEvent, Event, LeaseLostEvent
from ..message import Delivery
from ..observability import vocabulary
from ..observability.log import get_logger, wants_delivery_lines
from ..outcome import Ack, Defer, Reject, RejectionReason
from ..subscription import Subscription
from .ending import Ending, outcome_event, status_of
from .stats import PumpStats

_log = get_logger("pump.loop")
_delivery_log = get_logger("pump.delivery")


class Reporter:
    """Tells the story of one pump; builds nothing that nobody listens to."""

    def __init__(
        self,
        subscription: Subscription,
        stats: PumpStats,
        emit: Callable[[Event], None] | None,
    ) -> None:
        self._subscription = subscription
        self._stats = stats
        self._emit = emit

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
        tells = self._emit is not None or wants_delivery_lines()
        stats = self._stats
        stats.run_times.observe(endings)
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
            if tells:
                self._tell(ending)

    def lost(self, delivery: Delivery) -> None:
        """A lease ended before its message was settled."""
        self._stats.leases_lost += 1
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

    def _count_rejection(self, ending: Ending, reason: RejectionReason) -> None:
        if not isinstance(ending.action, Ack):
            self._stats.retried += 1
        elif reason is RejectionReason.UNACCEPTABLE:
            self._stats.invalid += 1
        else:
            self._stats.dead_lettered += 1

    def _tell(self, ending: Ending) -> None:
        status = status_of(ending)
        if status is not None and self._emit is not None:
            self._emit(outcome_event(ending, status, self._subscription.name))
        if not wants_delivery_lines():
            return
        delivery, error = ending.delivery, ending.error
        _delivery_log.info(
            vocabulary.MESSAGE_SETTLED,
            subscription=self._subscription.name,
            queue=delivery.queue,
            message_id=delivery.message.id,
            type=delivery.message.type,
            outcome=type(ending.outcome).__name__.lower(),
            attempt=delivery.attempt,
            run_s=round(ending.run_s, 6),
            **({} if error is None else {"error": type(error).__name__}),
        )
