"""Ending: how a delivery ended, on its way through the settler to those who are told."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from ..decide import describe
from ..events import OutcomeEvent, Status
from ..message import Delivery
from ..observability.in_hand import Trace, active_trace
from ..outcome import (
    INVALID_REASONS,
    Ack,
    Action,
    Defer,
    Fate,
    Outcome,
    Reject,
    RejectionReason,
    Settlement,
)
from ..signals import DeferMessage, InvalidMessage, RejectMessage, Signal

if TYPE_CHECKING:
    from ..rejection import Routed


class Ending(Settlement, frozen=True, eq=False, weakref=True):
    """A settlement, with what observers and the log want to know of it."""

    outcome: Outcome
    run_s: float = 0.0
    destination: str | None = None
    error: BaseException | None = None
    trace: Trace | None = None
    """The span in which it was handled, where one was active."""
    fate: Fate | None = None
    """What became of it where it was rejected."""


def ended_by_hand(
    delivery: Delivery,
    action: Action,
    outcome: Outcome,
    *,
    run_s: float,
    routed: Routed | None = None,
) -> Ending:
    """The ending of a delivery that was settled by hand: told as if a handler had returned, or
    had raised the signal for it.
    """
    where, fate = (None, None) if routed is None else (routed.destination, routed.fate)
    error = _signal_of(outcome)
    return Ending(delivery, action, outcome, run_s, where, error, active_trace(), fate)


def _signal_of(outcome: Outcome) -> Signal | None:
    match outcome:
        case Defer(delay_s=delay_s):
            return DeferMessage(timedelta(seconds=delay_s))
        case Reject(reason=RejectionReason.UNACCEPTABLE, detail=detail):
            return InvalidMessage(detail)
        case Reject(detail=detail):
            return RejectMessage(detail)
        case _:
            return None


def is_unacceptable(ending: Ending) -> bool:
    """Whether it counts towards `Subscription.unacceptable_limit`."""
    outcome = ending.outcome
    return isinstance(outcome, Reject) and outcome.reason in INVALID_REASONS


def status_of(ending: Ending) -> Status | None:
    """What became of the message; None for one that was handed back untried."""
    match ending.outcome, ending.action:
        case Ack(), _:
            return Status.PROCESSED
        case Reject(), Ack():
            is_gone = ending.fate is Fate.DISCARDED
            return Status.DISCARDED if is_gone else Status.DEAD_LETTERED
        case ((Defer() | Reject()), _):
            return Status.RETRYING
        case _:
            return None


def outcome_event(ending: Ending, status: Status, subscription: str) -> OutcomeEvent:
    """The event observers are told."""
    delivery, outcome = ending.delivery, ending.outcome
    reason = outcome.reason if isinstance(outcome, Reject) else None
    return OutcomeEvent(
        message_id=delivery.message.id,
        status=status,
        attempt=delivery.attempt,
        queue=delivery.queue,
        subscription=subscription,
        message_type=delivery.message.type,
        reason=reason,
        destination=ending.destination,
        detail=_detail(ending),
        run_s=ending.run_s,
        created_at_s=delivery.message.created_at_s,
        error_type="" if ending.error is None else type(ending.error).__name__,
        fate=ending.fate,
    )


def _detail(ending: Ending) -> str:
    if isinstance(ending.outcome, Reject):
        return ending.outcome.detail
    return "" if ending.error is None else describe(ending.error)
