"""What travels and what arrives: `Message` is sent, `Delivery` is a message in hand."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

import attrs

from .ids import new_id

JSON = "application/json"


@attrs.frozen(kw_only=True)
class Message:
    """A body and the header fields that let a stranger route it without reading it.

    The id is the application's: it survives retries, dead-letter queues and redrive.
    `headers` holds whatever has no field of its own (trace context, rejection metadata, the
    application's own); it is text to text, and nobody changes it after construction.
    """

    body: bytes = attrs.field(repr=False)
    id: str = attrs.field(factory=new_id)
    type: str = ""
    content_type: str = JSON
    correlation_id: str | None = None
    reply_to: str | None = None
    group: str | None = None
    """Ordering key: messages of one group are delivered in the order they were sent."""
    deduplication_id: str | None = None
    """Two sends with one de-duplication id inside the queue's window are one message."""
    created_at_s: float | None = None
    """Unix time at which the sender made it, None when a foreign producer did not say."""
    headers: Mapping[str, str] = attrs.field(factory=dict, repr=False)

    def with_body(self, body: bytes) -> Message:
        """The same message around another body.

        Done twice for every sealed message: `attrs.evolve`, and even the constructor, take much
        longer than this. A test compares it with them, field by field.
        """
        made, put = Message.__new__(Message), object.__setattr__
        put(made, "body", body)
        put(made, "id", self.id)
        put(made, "type", self.type)
        put(made, "content_type", self.content_type)
        put(made, "correlation_id", self.correlation_id)
        put(made, "reply_to", self.reply_to)
        put(made, "group", self.group)
        put(made, "deduplication_id", self.deduplication_id)
        put(made, "created_at_s", self.created_at_s)
        put(made, "headers", self.headers)
        return made

    @property
    def created_at(self) -> datetime | None:
        """When the sender made it, as an aware UTC datetime; None for a time no calendar has."""
        if self.created_at_s is None:
            return None
        try:
            return datetime.fromtimestamp(self.created_at_s, UTC)
        except (ValueError, OverflowError, OSError):
            return None


@attrs.frozen(kw_only=True, eq=False)
class Delivery:
    """One hand-over of a message by a broker, under a lease that must be settled.

    Compared by identity: the same message delivered twice is two deliveries. `attempt` is the
    provider's count, 1 at the first delivery. `lease_expires_at_s` is on the gateway's clock
    (`Clock.now_s`) and is what the broker granted at receipt; the lease keeper knows of
    extensions.
    """

    message: Message
    queue: str
    receipt: str = attrs.field(repr=False)
    attempt: int
    lease_expires_at_s: float
    is_ordered: bool = True
    """Whether the queue keeps the order of its group; False where a group means something else,
    as on SQS standard queues, whose groups are tenants that get their fair share."""
    broker_id: str | int | None = None
    """The provider's own id of what it stores: the same for every delivery of it, another one for
    a copy that somebody sends again. None where there is none."""
