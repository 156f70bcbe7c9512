"""Delivery log: the one canonical log line of each delivery, written once the broker confirmed it.

| what became of it                       | status        | level   |
|-----------------------------------------|---------------|---------|
| handled                                 | processed     | info    |
| put off by the handler (`DeferMessage`) | retrying      | info    |
| failed, and to be delivered again       | retrying      | warning |
| rejected, and routed away or spilled    | dead-lettered | error   |
| rejected, and gone without a copy       | discarded     | error   |
| handed back untried                     | released      | info    |
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

import msgspec

from ..clock import SYSTEM_CLOCK, Clock
from ..events import Status
from ..message import Message
from ..observability.in_hand import trace_of
from ..observability.log import get_logger, short_way
from ..observability.sampling import DELIVERIES, is_kept, sampling_of
from ..observability.vocabulary import MESSAGE_SETTLED
from ..outcome import Ack, Reject
from ..signals import carries_signal
from .processing import DeliveryResult, status_of

_logger = logging.getLogger(DELIVERIES)
_log = get_logger(DELIVERIES)
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
        if not _logger.isEnabledFor(logging.INFO):
            results = [each for each in results if not isinstance(each.outcome, Ack)]
            if not results:
                return
        now_s = self._clock.time_s()
        direct = short_way(_logger)
        timestamp = "" if direct is None else _timestamp()
        for result, sampled in _kept(results, sampling_of(_logger)):
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
        if not _logger.isEnabledFor(level):
            return
        delivery, outcome = result.delivery, result.outcome
        trace = result.trace or trace_of(delivery.message) or _NO_TRACE
        _log.log(
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
    return ", ".join(sorted(_types_in(error)))


def _types_in(error: BaseException) -> set[str]:
    if isinstance(error, BaseExceptionGroup):
        return set().union(*map(_types_in, error.exceptions))
    return {type(error).__name__}


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
