"""Decide: error → outcome, in one pure function.

| what happened                              | outcome                                   |
|--------------------------------------------|-------------------------------------------|
| the handler returned                       | Ack                                       |
| DeferMessage(delay)                        | Defer(delay, or the strategy's backoff)   |
| RejectMessage(detail)                      | Reject(DELIVERY_ERROR)                    |
| InvalidMessage, MappingError, no handler   | Reject(UNACCEPTABLE)                      |
| any other error, retries left              | Defer(backoff)                            |
| any other error, none left                 | Reject(DELIVERY_ERROR)                    |

A group of failures (several handlers of one event) is settled by its gravest member:
defer > reject > invalid > error. Deferring wins because some handler still has work to do
with this message, and only a delivery can give it that.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import assert_never

from .backoff import Backoff
from .errors import HandlerNotFound, MappingError
from .outcome import ACK, Defer, Outcome, Reject, RejectionReason
from .signals import DeferMessage, InvalidMessage, RejectMessage
from .strategy import DeadLetter, FailureStrategy, Hybrid, Retry

MAX_DETAIL = 1024
"""Characters of an error's text that travel with a rejected message."""


def decide(
    error: BaseException | None, *, attempt: int, strategy: FailureStrategy, chance: float = 0.0
) -> Outcome:
    """Return what to do with the `attempt`-th delivery of a message, given how handling ended."""
    if error is None:
        return ACK
    gravest = min(_leaves(error), key=_rank)
    match gravest:
        case DeferMessage(delay=delay):
            if delay is not None:
                return Defer(max(0.0, delay.total_seconds()))
            return Defer(_backoff(strategy).delay_s(attempt, chance))
        case RejectMessage(detail=detail):
            return Reject(RejectionReason.DELIVERY_ERROR, detail[:MAX_DETAIL])
        case InvalidMessage(detail=detail):
            return Reject(RejectionReason.UNACCEPTABLE, detail[:MAX_DETAIL])
        case MappingError() | HandlerNotFound():
            return Reject(RejectionReason.UNACCEPTABLE, describe(gravest))
        case _:
            return _after_failure(gravest, attempt, strategy, chance)


def _after_failure(
    error: BaseException, attempt: int, strategy: FailureStrategy, chance: float
) -> Outcome:
    match strategy:
        case DeadLetter():
            max_retries: int | None = 0
        case Retry() | Hybrid():
            max_retries = strategy.max_retries
        case _:
            assert_never(strategy)
    if max_retries is None or attempt <= max_retries:
        return Defer(_backoff(strategy).delay_s(attempt, chance))
    return Reject(RejectionReason.DELIVERY_ERROR, describe(error))


def _backoff(strategy: FailureStrategy) -> Backoff:
    return Backoff() if isinstance(strategy, DeadLetter) else strategy.backoff


def _rank(error: BaseException) -> int:
    match error:
        case DeferMessage():
            return 1
        case RejectMessage():
            return 2
        case InvalidMessage() | MappingError() | HandlerNotFound():
            return 3
        case _:
            return 4


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for member in error.exceptions:
            yield from _leaves(member)
    else:
        yield error


def describe(error: BaseException) -> str:
    """One line that names an error, short enough to travel in a header."""
    return f"{type(error).__name__}: {error}"[:MAX_DETAIL]
