"""Decide: error → outcome, in one pure function.

| what happened                              | outcome                                   |
|--------------------------------------------|-------------------------------------------|
| the handler returned                       | Ack                                       |
| DeferMessage(delay)                        | Defer(delay, or the strategy's backoff)   |
| RejectMessage(detail)                      | Reject(DELIVERY_ERROR)                    |
| InvalidMessage, MappingError, CryptoError, | Reject(UNACCEPTABLE)                      |
| no handler                                 |                                           |
| any other error, retries left              | Defer(backoff)                            |
| any other error, none left                 | Reject(DELIVERY_ERROR)                    |
| delivered more often than `max_attempts`   | Reject(DELIVERY_ERROR), without handling  |

An error is whatever a handler raises and is neither an end of the program nor a cancellation from
outside; its class need not derive from Exception.

A group of failures (several handlers of one event) is settled by its gravest member:
defer > reject > invalid > error. Deferring wins because some handler still has work to do
with this message, and only a delivery can give it that.
"""

from __future__ import annotations

from datetime import timedelta
from typing import assert_never

from .backoff import Backoff
from .errors import CorruptedMessage, CryptoError, HandlerNotFound, MappingError, leaves, text_of
from .outcome import (
    ACK,
    Defer,
    DeferMessage,
    InvalidMessage,
    Outcome,
    Reject,
    RejectionReason,
    RejectMessage,
)
from .subscription import DeadLetter, FailureStrategy, Hybrid, Retry

MAX_DETAIL = 1024
"""Characters of an error's text that travel with a rejected message."""


def decide(
    error: BaseException | None,
    *,
    attempt: int,
    strategy: FailureStrategy,
    chance: float = 0.0,
    quotes_errors: bool = True,
) -> Outcome:
    """Return what to do with the `attempt`-th delivery of a message, given how handling ended.

    Unless `quotes_errors`, a rejection names an unforeseen error by its class alone: its text may
    hold a part of the body, and travels in a header that every consumer reads.
    """
    if error is None:
        return ACK
    gravest = min(leaves(error), key=_rank)
    match gravest:
        case DeferMessage(delay=delay):
            if isinstance(delay, timedelta):
                return Defer(max(0.0, delay.total_seconds()))
            return Defer(_backoff(strategy).delay_s(attempt, chance))
        case RejectMessage(detail=detail):
            return Reject(RejectionReason.DELIVERY_ERROR, text_of(detail)[:MAX_DETAIL])
        case InvalidMessage(detail=detail):
            return Reject(RejectionReason.UNACCEPTABLE, text_of(detail)[:MAX_DETAIL])
        case CorruptedMessage():
            return Reject(RejectionReason.CORRUPTED, describe(gravest))
        case MappingError() | CryptoError() | HandlerNotFound():
            return Reject(RejectionReason.UNACCEPTABLE, describe(gravest))
        case _:
            detail = describe(gravest) if quotes_errors else type(gravest).__name__
            return _after_failure(detail, attempt, strategy, chance)


def exhausted(attempt: int, max_attempts: float) -> Reject:
    """What becomes of a message that was delivered so often and never came to an end."""
    detail = (
        f"delivered {attempt} times without an end (max_attempts={max_attempts:g}): its process "
        "died, its lease ran out or its handler deferred it, each time"
    )
    return Reject(RejectionReason.DELIVERY_ERROR, detail)


def _after_failure(detail: str, attempt: int, strategy: FailureStrategy, chance: float) -> Outcome:
    match strategy:
        case DeadLetter():
            max_retries: int | None = 0
        case Retry() | Hybrid():
            max_retries = strategy.max_retries
        case _:
            assert_never(strategy)
    if max_retries is None or attempt <= max_retries:
        return Defer(_backoff(strategy).delay_s(attempt, chance))
    return Reject(RejectionReason.DELIVERY_ERROR, detail)


def _backoff(strategy: FailureStrategy) -> Backoff:
    return Backoff() if isinstance(strategy, DeadLetter) else strategy.backoff


def _rank(error: BaseException) -> int:
    match error:
        case DeferMessage():
            return 1
        case RejectMessage():
            return 2
        case InvalidMessage() | MappingError() | CryptoError() | HandlerNotFound():
            return 3
        case _:
            return 4


def describe(error: BaseException) -> str:
    """One line that names an error, short enough to travel in a header."""
    return f"{type(error).__name__}: {text_of(error)}"[:MAX_DETAIL]
