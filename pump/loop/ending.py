"""Ending: how a delivery ended, on its way through the settler to those who are told."""

from __future__ import annotations

from ..decide import describe
from ..events import OutcomeEvent, Status
from ..observability.in_hand import Trace
from ..outcome import Ack, Defer, Outcome, Reject, RejectionReason, Settlement


class Ending(Settlement, frozen=True, eq=False, weakref=True):
    """A settlement, with what observers and the log want to know of it."""

    outcome: Outcome
    run_s: float = 0.0
    destination: str | None = None
    error: BaseException | None = None
    trace: Trace | None = None
    """The span in which it was handled, where one was active."""


def is_unacceptable(ending: Ending) -> bool:
    """Whether it counts towards `Subscription.unacceptable_limit`."""
    outcome = ending.outcome
    return isinstance(outcome, Reject) and outcome.reason is RejectionReason.UNACCEPTABLE


def status_of(ending: Ending) -> Status | None:
    """What became of the message; None for one that was handed back untried."""
    match ending.outcome, ending.action:
        case Ack(), _:
            return Status.PROCESSED
        case Reject(), Ack():
            return Status.DEAD_LETTERED
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
    )


def _detail(ending: Ending) -> str:
    if isinstance(ending.outcome, Reject):
        return ending.outcome.detail
    return "" if ending.error is None else describe(ending.error)
