"""Reporter: counts what became of messages, and tells observers and the log."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence

import attrs

from ..clock import SYSTEM_CLOCK, Clock
from ..events import BestEffortOrderEvent, Event, LeaseLostEvent
from ..findings import HandlerTimes
from ..message import Delivery
from ..observability import vocabulary
from ..observability.log import get_logger
from ..observability.telemetry import Telemetry
from ..outcome import INVALID_REASONS, Ack, Defer, Reason, Reject
from ..ports import PayloadEncryption
from ..subscription import Subscription
from .delivery_log import DeliveryLines
from .processing import DeliveryResult, outcome_event, status_of

_log = get_logger("pump.loop")


class Reporter:
    """Reports what one pump does; builds nothing that has no observer."""

    def __init__(
        self,
        subscription: Subscription,
        stats: PumpStats,
        emit: Callable[[Event], None] | None,
        *,
        telemetry: Telemetry | None = None,
        encryption: PayloadEncryption | None = None,
        gateway: str | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._lines = DeliveryLines(subscription.name, gateway=gateway, clock=clock)
        self._subscription = subscription
        self._stats = stats
        self._emit = emit
        self._telemetry = telemetry
        self._encryption = encryption

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

    def left_behind(self, delivery: Delivery) -> None:
        """A handler does not end though it was cancelled: its message is handed back."""
        _log.error(
            vocabulary.TASK_ABANDONED,
            subscription=self._subscription.name,
            message_id=delivery.message.id,
            attempt=delivery.attempt,
        )

    def flush_expired(self, unsettled_count: int) -> None:
        """The broker would not settle these; it will deliver them again."""
        _log.error(
            vocabulary.FLUSH_EXPIRED,
            subscription=self._subscription.name,
            unsettled=unsettled_count,
        )

    def drained(self) -> None:
        """The pump has stopped, and nothing is left in flight."""
        _log.info(vocabulary.PUMP_DRAINED, subscription=self._subscription.name)

    def settled(self, results: Sequence[DeliveryResult]) -> None:
        """The broker confirmed these."""
        stats = self._stats
        stats.run_times.observe(results)
        if self._telemetry is not None:
            self._telemetry.settled(self._subscription, results)
        if self._encryption is not None:
            self._report_to_encryption(results, self._encryption)
        for result in results:
            match result.outcome:
                case Ack():
                    stats.processed += 1
                case Reject(reason=reason):
                    self._count_rejection(result, reason)
                case Defer():
                    stats.retried += 1
                case _:
                    stats.released += 1
        if self._emit is not None:
            for result in results:
                self._tell(result, self._emit)
        self._lines.write(results)

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

    def _report_to_encryption(
        self, results: Sequence[DeliveryResult], encryption: PayloadEncryption
    ) -> None:
        for result in results:
            if isinstance(result.action, Ack):
                encryption.settled(result.delivery, is_handled=isinstance(result.outcome, Ack))

    def _count_rejection(self, result: DeliveryResult, reason: Reason) -> None:
        if not isinstance(result.action, Ack):
            self._stats.retried += 1
        elif reason in INVALID_REASONS:
            self._stats.invalid += 1
        else:
            self._stats.dead_lettered += 1

    def _tell(self, result: DeliveryResult, emit: Callable[[Event], None]) -> None:
        status = status_of(result)
        if status is not None:
            emit(outcome_event(result, status, self._subscription.name))


# Run times: how long handlers took, in buckets. A delivery costs an addition and an increment.

_SHORT_S = 0.001
"""No lease is chosen by handlers that are faster than this, so they share a bucket."""
_STEPS = 4
_BOUNDS_S = tuple(_SHORT_S * 2 ** (step / _STEPS) for step in range(27 * _STEPS))
"""The upper end of each bucket, four to every doubling, up to more than a day."""


@attrs.define
class RunTimes:
    """Counts by duration; ever growing, and small whatever it has seen."""

    counts: list[int] = attrs.field(factory=lambda: [0] * (len(_BOUNDS_S) + 1))
    sum_s: float = 0.0
    max_s: float = 0.0

    def observe(self, results: Iterable[DeliveryResult]) -> None:
        """Count those that a handler finished; a run of zero was untried, or told to stop."""
        short_count, sum_s, max_s = 0, 0.0, self.max_s
        for result in results:
            run_s = result.run_s
            sum_s += run_s
            if run_s > max_s:
                max_s = run_s
            if run_s > _SHORT_S:
                self.counts[bisect_left(_BOUNDS_S, run_s)] += 1
            elif run_s:
                short_count += 1
        self.counts[0] += short_count
        self.sum_s += sum_s
        self.max_s = max_s

    def summary(self, *, lost_count: int, now_s: float) -> HandlerTimes:
        """What was seen until now."""
        count = sum(self.counts)
        return HandlerTimes(
            count=count,
            mean_s=self.sum_s / count if count else 0.0,
            p50_s=self._percentile_s(0.50 * count),
            p99_s=self._percentile_s(0.99 * count),
            max_s=self.max_s,
            lost_count=lost_count,
            observed_at_s=now_s,
        )

    def _percentile_s(self, rank: float) -> float:
        """The upper end of the bucket that holds the `rank`-th run."""
        seen_count = 0
        for bound_s, count in zip(_BOUNDS_S, self.counts, strict=False):
            seen_count += count
            if seen_count >= rank:
                return min(bound_s, self.max_s)
        return self.max_s


# Stats: what one pump has done, for summaries and for the health page.


@attrs.define
class PumpStats:
    """Counts since the pump was made; a restart does not reset them."""

    received: int = 0
    processed: int = 0
    retried: int = 0
    dead_lettered: int = 0
    invalid: int = 0
    released: int = 0
    """Handed back untried."""
    leases_lost: int = 0
    restarts: int = 0
    last_receive_at_s: float | None = None
    """On the pump's clock: when a receive last succeeded, with messages or without."""
    run_times: RunTimes = attrs.field(factory=RunTimes)
    """How long handlers took."""
