"""Events operators can hook into: what became of each message, and what the pump noticed."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum

import attrs

from .outcome import RejectionReason


class Status(StrEnum):
    """What became of a delivery."""

    PROCESSED = "processed"
    RETRYING = "retrying"
    DEAD_LETTERED = "dead-lettered"


@attrs.frozen(kw_only=True)
class OutcomeEvent:
    """A delivery was settled, and the broker has confirmed it.

    `reason` and `destination` are set when the message was routed; a destination of None with
    a reason means that no queue was configured, and the message is gone.
    """

    message_id: str
    status: Status
    attempt: int
    queue: str
    subscription: str
    message_type: str = ""
    reason: RejectionReason | None = None
    destination: str | None = None
    detail: str = ""
    run_s: float = 0.0
    """How long its handlers ran."""


@attrs.frozen(kw_only=True)
class LeaseLostEvent:
    """A lease was lost; the message will be delivered again and may be running elsewhere."""

    message_id: str
    queue: str
    subscription: str
    attempt: int


@attrs.frozen(kw_only=True)
class BestEffortOrderEvent:
    """A subscription started without an ordering guarantee: messages may be reordered."""

    queue: str
    subscription: str
    detail: str


@attrs.frozen(kw_only=True)
class PumpStateEvent:
    """A pump started, stopped, failed or was restarted."""

    subscription: str
    state: str
    detail: str = ""


Event = OutcomeEvent | LeaseLostEvent | BestEffortOrderEvent | PumpStateEvent
Observer = Callable[[Event], None]
"""Told of every event, on the event loop's thread: keep it short, or hand the event on."""
