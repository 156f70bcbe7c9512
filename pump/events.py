"""Events operators can hook into: what became of each message, and what the pump noticed."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable, Iterator
from enum import StrEnum

import attrs

from .observability import vocabulary
from .observability.log import get_logger
from .outcome import Fate, Reason


class Status(StrEnum):
    """What became of a delivery."""

    PROCESSED = "processed"
    RETRYING = "retrying"
    DEAD_LETTERED = "dead-lettered"
    """Rejected, and its copy is in `destination`, or in the spill on its way there."""
    DISCARDED = "discarded"
    """Rejected, and gone: no queue is configured for it, or none took it and the policy deletes."""


@attrs.frozen(kw_only=True)
class OutcomeEvent:
    """A delivery was settled, and the broker has confirmed it.

    `reason` and `fate` are set when the message was rejected, `destination` when there is a copy
    of it: in that queue, or in the spill on its way there (`Fate.SPILLED`).
    """

    message_id: str
    status: Status
    attempt: int
    queue: str
    subscription: str
    message_type: str = ""
    reason: Reason | None = None
    """A `RejectionReason`; by hand it may be the application's own text."""
    destination: str | None = None
    detail: str = ""
    run_s: float = 0.0
    """How long its handlers ran."""
    created_at_s: float | None = None
    """Unix time at which the sender made the message, None when it did not say."""
    error_type: str = ""
    """The class of what its handling raised; empty when nothing was."""
    fate: Fate | None = None
    """What became of a rejected message; None when it was not rejected."""


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
    """A pump's state changed: running, paused, draining, drained, failed or stopped."""

    subscription: str
    state: str
    detail: str = ""


@attrs.frozen(kw_only=True)
class PlaintextAcceptedEvent:
    """An unencrypted message was accepted where encrypted ones are expected
    (`PlaintextPolicy.ALLOW_WITH_ALERT`).
    """

    message_id: str
    queue: str
    message_type: str = ""


@attrs.frozen(kw_only=True)
class RedrivenEvent:
    """A dead letter was sent to a queue again, and that is recorded; it is about to be removed."""

    message_id: str
    queue: str
    """The dead-letter queue."""
    destination: str
    attempt: int
    message_type: str = ""
    reason: str | None = None
    """Why it was rejected, as its header says."""
    detail: str = ""
    created_at_s: float | None = None


Event = (
    OutcomeEvent
    | LeaseLostEvent
    | BestEffortOrderEvent
    | PumpStateEvent
    | PlaintextAcceptedEvent
    | RedrivenEvent
)
Observer = Callable[[Event], None]
"""Told of every event, on the event loop's thread: keep it short, or hand the event on."""


# Observers: any number of them, each shielded from the others' failures.

_log = get_logger("pump.events")


class Observers:
    """The observers that are told of events."""

    def __init__(self, observers: Iterable[Observer] = ()) -> None:
        self._observers = list(observers)

    def __bool__(self) -> bool:
        return bool(self._observers)

    def __iter__(self) -> Iterator[Observer]:
        return iter(self._observers)

    def add(self, observer: Observer) -> None:
        """Tell one more."""
        self._observers.append(observer)

    def tell(self, event: Event) -> None:
        """Tell all observers; one that fails is logged and does no harm."""
        for observer in self._observers:
            try:
                observer(event)
            except Exception as error:  # broad: an observer is the user's code
                _log.error(
                    vocabulary.OBSERVER_FAILED,
                    observer=getattr(observer, "__qualname__", type(observer).__qualname__),
                    told=type(event).__name__,
                    # By its type and place: its text may quote the event, and that a body.
                    error=type(error).__name__,
                    traceback="".join(traceback.format_tb(error.__traceback__)),
                )
