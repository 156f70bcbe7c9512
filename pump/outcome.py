"""Outcomes: what is to become of a delivery, and what a broker is told about it."""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum
from typing import Final

import attrs
from msgspec import Struct

from .errors import (
    ConfigurationError,
    GatewayError,
    InvalidReceipt,
    LeaseLost,
    SessionLockLost,
    leaves,
    text_of,
)
from .message import Delivery


class RejectionReason(StrEnum):
    """Why a message was taken out of its queue; the value is what the header says."""

    DELIVERY_ERROR = "DeliveryError"
    """Acceptable, but it could not be handled: goes to the dead-letter queue."""
    UNACCEPTABLE = "Unacceptable"
    """Not a message this subscription understands: goes to the invalid-message queue."""
    CORRUPTED = "Corrupted"
    """Stored, and no longer what was sent: goes where unacceptable ones go."""

    @classmethod
    def _missing_(cls, value: object) -> RejectionReason | None:
        """Found whatever its case, and by its name: `unacceptable`, `DELIVERY_ERROR`."""
        text = str(value).replace("_", "").casefold()
        return next((each for each in cls if each.value.casefold() == text), None)


Reason = RejectionReason | str
"""Why a message is rejected. Its text is what the header says."""
INVALID_REASONS: Final = frozenset({RejectionReason.UNACCEPTABLE, RejectionReason.CORRUPTED})
"""Those whose messages go to the invalid-message queue."""


class Fate(StrEnum):
    """What became of a rejected message."""

    ROUTED = "routed"
    """Its copy is in the destination queue, and the original is removed."""
    SPILLED = "spilled"
    """The destination could not be reached: its copy is in the spill store, from where it is sent
    on, and the original is removed."""
    KEPT = "kept"
    """The destination could not be reached, and the original stays: it is delivered again."""
    DISCARDED = "discarded"
    """The original is removed and there is no copy: no queue is configured for it, or the
    destination could not be reached and `on_routing_failure` is `delete`."""


@attrs.frozen
class Ack:
    """Done: remove the message for good."""


LONGEST_DEFERRAL_S: Final = 100 * 365 * 24 * 3600.0
"""A century: more than that, such as `timedelta.max`, ends after the last date there is."""


def _within_reach(delay_s: float) -> float:
    return min(delay_s, LONGEST_DEFERRAL_S)


@attrs.frozen
class Defer:
    """Not now: deliver again after `delay_s`, counted as an attempt. A century at most."""

    delay_s: float = attrs.field(default=0.0, converter=_within_reach)


@attrs.frozen
class Abandon:
    """Not tried: give it back at once.

    Not counted as an attempt where the broker can take the count back.
    """


@attrs.frozen
class Reject:
    """Cannot be handled: route a copy with its reason, then remove the original."""

    reason: Reason
    detail: str = ""


Outcome = Ack | Defer | Reject | Abandon
Action = Ack | Defer | Abandon
"""What a broker can be told. A rejection is a routed copy followed by an ack."""

ACK = Ack()
ABANDON = Abandon()


class Settlement(Struct, frozen=True, eq=False, weakref=True):
    """One action for one delivery."""

    delivery: Delivery
    action: Action


@attrs.frozen(eq=False)
class Refusal:
    """A settlement or extension the broker did not accept, and why."""

    delivery: Delivery
    error: GatewayError

    @property
    def is_final(self) -> bool:
        """Whether asking again cannot help: the broker owns the message again."""
        return isinstance(self.error, InvalidReceipt | LeaseLost | SessionLockLost)


# Signals: what a handler raises to say what should become of its message. Not errors.


class Signal(Exception):
    """The root of the signals; `decide` is the only place that reads them."""


class DeferMessage(Signal):
    """Deliver this message again after `delay` (None: the failure strategy's backoff)."""

    def __init__(self, delay: timedelta | None = None) -> None:
        super().__init__(delay)
        given: object = delay
        if not isinstance(given, timedelta | None):
            raise ConfigurationError(
                "DeferMessage.delay",
                given,
                "give a timedelta, or None for the backoff",
            )
        self.delay = delay

    def __str__(self) -> str:
        return "deferred" if self.delay is None else f"deferred by {self.delay}"


class RejectMessage(Signal):
    """This message can never be handled: send it to the dead-letter queue now.

    A detail that is no text, such as an error, is taken as its text.
    """

    def __init__(self, detail: str = "") -> None:
        detail = _text(detail)
        super().__init__(detail)
        self.detail = detail


class InvalidMessage(Signal):
    """This is not an acceptable message: send it to the invalid-message queue now.

    A detail that is no text, such as an error, is taken as its text.
    """

    def __init__(self, detail: str = "") -> None:
        detail = _text(detail)
        super().__init__(detail)
        self.detail = detail


def _text(detail: object) -> str:
    """The detail as text: a signal with a wrong one is still the signal that was meant."""
    if isinstance(detail, str):
        return detail
    return "" if detail is None else text_of(detail)


def carries_signal(error: BaseException) -> bool:
    """Whether `error` is a signal, or a group of errors (of a TaskGroup, say) with one inside."""
    return any(issubclass(type(each), Signal) for each in leaves(error))
