"""Reporter: counts what became of messages, and tells observers, telemetry and the log."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

import attrs
import msgspec

from ..clock import SYSTEM_CLOCK, Clock
from ..errors import GatewayError, leaves
from ..events import BestEffortOrderEvent, Event, LeaseLostEvent, Status
from ..findings import HandlerTimes
from ..message import Delivery, Message
from ..observability import vocabulary
from ..observability.in_hand import trace_of
from ..observability.log import get_logger, short_way
from ..observability.sampling import DELIVERIES, is_kept, sampling_of
from ..observability.telemetry import Telemetry
from ..observability.vocabulary import MESSAGE_SETTLED
from ..outcome import (
    INVALID_REASONS,
    Ack,
    Defer,
    Reason,
    Refusal,
    Reject,
    Settlement,
    carries_signal,
)
from ..percentiles import bucket_at, bucket_of, end_of
from ..ports import ConsumerPort, PayloadEncryption, SessionPort
from ..services import Services
from ..subscription import Subscription
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
        services: Services,
        gateway: str | None = None,
    ) -> None:
        self._lines = DeliveryLines(subscription.name, gateway=gateway, clock=services.clock)
        self._subscription = subscription
        self._stats = stats
        self._emit = emit
        self._telemetry = services.telemetry
        self._encryption = services.encryption

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
_SHORT = bucket_of(_SHORT_S)


@attrs.define
class RunTimes:
    """Counts by duration; ever growing, and small whatever it has seen."""

    counts: Counter[int] = attrs.field(factory=Counter)
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
                self.counts[bucket_of(run_s)] += 1
            elif run_s:
                short_count += 1
        self.counts[_SHORT] += short_count
        self.sum_s += sum_s
        self.max_s = max_s

    def summary(self, *, lost_count: int, now_s: float) -> HandlerTimes:
        """What was seen until now."""
        count = self.counts.total()
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
        bucket = bucket_at(rank, sorted(self.counts.items()))
        return self.max_s if bucket is None else min(end_of(bucket), self.max_s)


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


# Delivery log: the one canonical log line of each delivery, written once the broker confirmed it.
#
# | what became of it                       | status        | level   |
# |-----------------------------------------|---------------|---------|
# | handled                                 | processed     | info    |
# | put off by the handler (`DeferMessage`) | retrying      | info    |
# | failed, and to be delivered again       | retrying      | warning |
# | rejected, and routed away or spilled    | dead-lettered | error   |
# | rejected, and gone without a copy       | discarded     | error   |
# | handed back untried                     | released      | info    |

_delivery_logger = logging.getLogger(DELIVERIES)
_delivery_log = get_logger(DELIVERIES)
_encode = msgspec.json.Encoder().encode

_RELEASED = "released"


class _Processed(msgspec.Struct, omit_defaults=True):
    """The line of a message that was handled, as JSON has it: by far the most frequent one."""

    event: str
    level: str
    logger: str
    timestamp: str
    subscription: str
    queue: str
    message_id: str
    type: str
    outcome: str
    status: str
    attempt: int
    run_s: float
    gateway: str | None = None
    age_s: float | None = None
    correlation_id: str | None = None
    trace_id: str | None = None
    span_id: str | None = None
    sampled: int | None = None


class DeliveryLines:
    """Writes the lines of one subscription's deliveries."""

    def __init__(
        self, subscription: str, *, gateway: str | None = None, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self._subscription = subscription
        self._gateway = gateway
        self._clock = clock

    def write(self, results: Sequence[DeliveryResult]) -> None:
        """A line for each of these that the log's level and sampling let through."""
        if not _delivery_logger.isEnabledFor(logging.INFO):
            results = [each for each in results if not isinstance(each.outcome, Ack)]
            if not results:
                return
        now_s = self._clock.time_s()
        direct = short_way(_delivery_logger)
        timestamp = "" if direct is None else _timestamp()
        for result, sampled in _kept(results, sampling_of(_delivery_logger)):
            # What went wrong takes the long way always: it is rare, and tools that hook into the
            # standard library's logging, such as for alerts, wait for it there.
            line = None
            if direct is not None and isinstance(result.outcome, Ack):
                line = self._processed(result, now_s, sampled, timestamp)
            if direct is None or line is None:
                self._log(result, now_s, sampled)
            else:
                direct.write_line(line)

    def _processed(
        self, result: DeliveryResult, now_s: float, sampled: int | None, timestamp: str
    ) -> str | None:
        """The line as JSON; None where the fast encoder cannot make it."""
        delivery = result.delivery
        message = delivery.message
        trace_id, span_id = result.trace or trace_of(message) or _NO_TRACE
        line = _Processed(
            MESSAGE_SETTLED,
            "info",
            DELIVERIES,
            timestamp,
            self._subscription,
            delivery.queue,
            message.id,
            message.type,
            "ack",
            "processed",
            delivery.attempt,
            round(result.run_s, 6),
            self._gateway,
            _age_s(message, now_s),
            message.correlation_id or None,
            trace_id,
            span_id,
            sampled,
        )
        try:
            return _encode(line).decode() + "\n"
        except UnicodeEncodeError:
            return None  # Half a surrogate pair in a foreign id or type.

    def _log(self, result: DeliveryResult, now_s: float, sampled: int | None) -> None:
        status = status_of(result)
        level = level_of(result, status)
        if not _delivery_logger.isEnabledFor(level):
            return
        delivery, outcome = result.delivery, result.outcome
        trace = result.trace or trace_of(delivery.message) or _NO_TRACE
        _delivery_log.log(
            level,
            MESSAGE_SETTLED,
            subscription=self._subscription,
            queue=delivery.queue,
            message_id=delivery.message.id,
            type=delivery.message.type,
            outcome=type(outcome).__name__.lower(),
            status=_RELEASED if status is None else status.value,
            attempt=delivery.attempt,
            run_s=round(result.run_s, 6),
            **_known(
                gateway=self._gateway,
                age_s=_age_s(delivery.message, now_s),
                correlation_id=delivery.message.correlation_id or None,
                reason=str(outcome.reason) if isinstance(outcome, Reject) else None,
                fate=None if result.fate is None else result.fate.value,
                destination=result.destination,
                error=None if result.error is None else error_types(result.error),
                trace_id=trace[0],
                span_id=trace[1],
                sampled=sampled,
            ),
        )


_NO_TRACE = (None, None)


def level_of(result: DeliveryResult, status: Status | None) -> int:
    """How loud the line of a delivery is."""
    match status:
        case Status.DEAD_LETTERED | Status.DISCARDED:
            return logging.ERROR
        case Status.RETRYING if result.error is None or not carries_signal(result.error):
            return logging.WARNING
        case _:
            return logging.INFO


def error_types(error: BaseException) -> str:
    """What kind of error it was; of a group, the kinds of its members. Never its text, which may
    quote the message.
    """
    return ", ".join(sorted({type(each).__name__ for each in leaves(error)}))


def _kept(
    results: Sequence[DeliveryResult], one_in: int
) -> Iterator[tuple[DeliveryResult, int | None]]:
    for result in results:
        delivery = result.delivery
        if one_in == 1 or delivery.attempt > 1 or not isinstance(result.outcome, Ack):
            yield result, None
        elif is_kept(delivery.message.id, one_in):
            yield result, one_in


def _known(**fields: Any) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def _age_s(message: Message, now_s: float) -> float | None:
    created_at_s = message.created_at_s
    return None if created_at_s is None else round(now_s - created_at_s, 3)


def _timestamp() -> str:
    # Log lines are dated by the machine's clock, whatever clock the app was given.
    second, fraction = divmod(SYSTEM_CLOCK.time_s(), 1)
    return f"{_up_to_the_second(int(second))}.{int(fraction * 1_000_000):06d}Z"


@lru_cache(maxsize=1)
def _up_to_the_second(second: int) -> str:
    return datetime.fromtimestamp(second, UTC).isoformat().removesuffix("+00:00")


# Watched ports: what a consumer by hand does, told to the telemetry. Pumps tell it themselves, and
# know more.


class PortWatch:
    """Tells of the receives and settle calls of one subscription."""

    def __init__(self, telemetry: Telemetry, subscription: Subscription, clock: Clock) -> None:
        self.telemetry = telemetry
        self.subscription = subscription
        self._clock = clock

    async def receive(self, receiving: Awaitable[Sequence[Delivery]]) -> Sequence[Delivery]:
        """Await a receive."""
        asked_at_s = self._clock.now_s()
        try:
            deliveries = await receiving
        except GatewayError as error:
            self.telemetry.failed("receive", self.subscription.queue, error)
            raise
        waited_s = self._clock.now_s() - asked_at_s
        self.telemetry.received(self.subscription, deliveries, waited_s=waited_s)
        return deliveries

    async def settle(
        self, settlements: Sequence[Settlement], settling: Awaitable[Sequence[Refusal]]
    ) -> Sequence[Refusal]:
        """Await a settle call. What it changed, and which leases it found lost, the loop's
        reporter tells.
        """
        with self.telemetry.settling(self.subscription, settlements):
            return await settling


class WatchedConsumerPort:
    """A consumer's port, watched."""

    def __init__(self, port: ConsumerPort, watch: PortWatch) -> None:
        self._port = port
        self._watch = watch

    async def receive(self, *, max_count: int, wait_s: float) -> Sequence[Delivery]:
        return await self._watch.receive(self._port.receive(max_count=max_count, wait_s=wait_s))

    async def settle(self, settlements: Sequence[Settlement]) -> Sequence[Refusal]:
        return await self._watch.settle(settlements, self._port.settle(settlements))

    async def extend(self, deliveries: Sequence[Delivery], *, lease_s: float) -> Sequence[Refusal]:
        watch = self._watch
        try:
            refusals = await self._port.extend(deliveries, lease_s=lease_s)
        except GatewayError as error:
            watch.telemetry.failed("extend", watch.subscription.queue, error)
            raise
        watch.telemetry.extended(watch.subscription, len(deliveries) - len(refusals))
        return refusals

    async def aclose(self) -> None:
        await self._port.aclose()


class WatchedSessionPort:
    """A session's port, watched. Its lock is one lease, whatever it holds."""

    def __init__(self, port: SessionPort, watch: PortWatch) -> None:
        self._port = port
        self._watch = watch

    @property
    def id(self) -> str:
        return self._port.id

    @property
    def lock_expires_at_s(self) -> float | None:
        return self._port.lock_expires_at_s

    async def receive(self, *, max_count: int, wait_s: float) -> Sequence[Delivery]:
        return await self._watch.receive(self._port.receive(max_count=max_count, wait_s=wait_s))

    async def settle(self, settlements: Sequence[Settlement]) -> Sequence[Refusal]:
        return await self._watch.settle(settlements, self._port.settle(settlements))

    async def renew(self) -> None:
        watch = self._watch
        try:
            await self._port.renew()
        except GatewayError as error:
            watch.telemetry.failed("extend", watch.subscription.queue, error)
            raise
        watch.telemetry.extended(watch.subscription, 1)

    async def aclose(self) -> None:
        await self._port.aclose()
