"""Outcomes: what is to become of a delivery, and what a broker is told about it."""

from __future__ import annotations

from enum import StrEnum

import attrs
from msgspec import Struct

from .errors import GatewayError, InvalidReceipt, LeaseLost, SessionLockLost
from .message import Delivery


class RejectionReason(StrEnum):
    """Why a message was taken out of its queue; the value is what the header says."""

    DELIVERY_ERROR = "DeliveryError"
    """Acceptable, but it could not be handled: goes to the dead-letter queue."""
    UNACCEPTABLE = "Unacceptable"
    """Not a message this subscription understands: goes to the invalid-message queue."""


@attrs.frozen
class Ack:
    """Done: remove the message for good."""


@attrs.frozen
class Defer:
    """Not now: deliver again after `delay_s`, counted as an attempt."""

    delay_s: float = 0.0


@attrs.frozen
class Abandon:
    """Not tried: give it back at once.

    Not counted as an attempt where the broker can take the count back.
    """


@attrs.frozen
class Reject:
    """Cannot be handled: route a copy with its reason, then remove the original."""

    reason: RejectionReason
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
