"""Builders: a valid message, delivery, subscription or settlement, of which a test names only
what it is about.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypedDict, Unpack

from ..message import Delivery, Message, new_id
from ..outcome import ABANDON, ACK, Defer, Settlement
from ..subscription import Subscription
from .virtual_clock import START_S


class MessageFields(TypedDict, total=False):
    """The fields of `Message` that `a_message` passes on."""

    id: str
    type: str
    content_type: str
    correlation_id: str | None
    reply_to: str | None
    group: str | None
    deduplication_id: str | None
    created_at_s: float | None
    headers: Mapping[str, str]


def a_message(body: bytes | str = b"{}", **fields: Unpack[MessageFields]) -> Message:
    """A message with an id of its own; text becomes UTF-8."""
    return Message(body=body.encode() if isinstance(body, str) else body, **fields)


def a_delivery(
    message: Message | None = None,
    *,
    queue: str = "orders",
    attempt: int = 1,
    receipt: str | None = None,
    lease_expires_at_s: float = START_S + 30.0,
) -> Delivery:
    """A delivery as a gateway would hand it over, with a receipt no other delivery has.

    Its lease ends 30 s after the beginning of a `VirtualClock`.
    """
    return Delivery(
        message=message or a_message(),
        queue=queue,
        receipt=receipt or f"receipt-{new_id()}",
        attempt=attempt,
        lease_expires_at_s=lease_expires_at_s,
    )


def a_subscription(queue: str = "orders", **fields: Any) -> Subscription:
    """A subscription to `queue` whose requests are plain dicts unless `request` or `resolver`
    says otherwise.
    """
    if "request" not in fields and "resolver" not in fields:
        fields["request"] = dict
    return Subscription(queue=queue, **fields)


def ack(delivery: Delivery) -> Settlement:
    """Done with it."""
    return Settlement(delivery, ACK)


def defer(delivery: Delivery, *, seconds: float = 0.0) -> Settlement:
    """Again in `seconds`."""
    return Settlement(delivery, Defer(seconds))


def abandon(delivery: Delivery) -> Settlement:
    """Given back untried."""
    return Settlement(delivery, ABANDON)
