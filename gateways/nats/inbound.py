"""Inbound: from what the server delivered to deliveries, understood or not. Pure."""

from __future__ import annotations

from pump.message import Delivery, Message

from .names import QueueNames, name_of
from .pulls import Arrived
from .receipts import receipt_for
from .wire import arrival_of, decode, native_of


def delivery_of(
    arrived: Arrived, names: QueueNames, *, lease_s: float, is_ordered: bool
) -> Delivery:
    """The delivery, under a receipt of its own."""
    message = arrived.message
    arrival = arrival_of(message.reply)
    sequence = 0 if arrival is None else arrival.sequence
    return Delivery(
        message=message_of(
            message.subject,
            message.headers,
            message.data,
            names=names,
            stored=(sequence, None if arrival is None else arrival.stored_at_s),
        ),
        queue=names.queue,
        receipt=receipt_for(message.reply),
        attempt=1 if arrival is None else arrival.attempt,
        lease_expires_at_s=arrived.at_s + lease_s,
        is_ordered=is_ordered,
        broker_id=sequence,
        native=native_of(message.headers),
    )


def message_of(
    subject: str,
    headers: dict[str, str] | None,
    body: bytes,
    *,
    names: QueueNames,
    stored: tuple[int, float | None],
) -> Message:
    """The message, whoever sent it; `stored` is its place in the stream, and since when."""
    sequence, stored_at_s = stored
    token = names.group_token(subject)
    return decode(
        headers,
        body,
        stored_as=f"{names.stream}-{sequence}",
        stored_at_s=stored_at_s,
        group=None if token is None else name_of(token) or token,
    )
