"""What travels and what arrives: `Message` is sent, `Delivery` is a received message.

Both are msgspec structs where other values are attrs classes: one of each, and more, are made for
every message, and a frozen attrs class takes several times as long. `msgspec.structs.replace`
makes changed copies.
"""

from __future__ import annotations

import itertools
import os
import secrets
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from msgspec import Struct, field

from .errors import ConfigurationError

# Identifiers: unique across processes and machines, cheap enough for one a message.


class _IdSource:
    """What ids of 32 hexadecimal digits are made of: 80 random bits a process, then a counter.

    Two processes share a prefix with a chance of 2**-80, and a fork draws a new one, so ids
    are as unique as a UUID's at a tenth of its cost (0.3 µs against 4 µs).
    """

    def __init__(self) -> None:
        self.renew()

    def renew(self) -> None:
        """Draw a new prefix; a forked child must never go on with its parent's."""
        self.prefix = secrets.token_hex(10)
        self.numbers = itertools.count(1)


_source = _IdSource()
os.register_at_fork(after_in_child=_source.renew)


def new_id() -> str:
    """Return an id that no other call, process or machine has returned."""
    return f"{_source.prefix}{next(_source.numbers):012x}"


JSON = "application/json"
_HIDDEN = frozenset({"body", "headers", "receipt", "native"})


class _RedactedStruct(Struct, frozen=True):
    """A struct whose repr and logs leave out what may be secret."""

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        shown = [name for name in self.__struct_fields__ if name not in _HIDDEN]
        return [(name, getattr(self, name)) for name in shown]

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={value!r}" for name, value in self.__rich_repr__())
        return f"{type(self).__name__}({shown})"


# No message can be part of a cycle, so the collector need not look at any.
class Message(_RedactedStruct, frozen=True, kw_only=True, gc=False):
    """A body and the header fields by which it can be routed without being read.

    The id is the application's: it survives retries, dead-letter queues and redrive.
    `headers` holds whatever has no field of its own (trace context, rejection metadata, the
    application's own); it is text to text, and never changed after construction.
    """

    body: bytes
    id: str = field(default_factory=new_id)
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
    headers: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.body.__class__ is not bytes:
            _check_body(self.body)

    @property
    def created_at(self) -> datetime | None:
        """When the sender made it, as an aware UTC datetime; None for a time no calendar has."""
        if self.created_at_s is None:
            return None
        try:
            return datetime.fromtimestamp(self.created_at_s, UTC)
        except (ValueError, OverflowError, OSError):
            return None


def _check_body(body: object) -> None:
    if not isinstance(body, bytes):
        # By its type: what it holds is the message's content.
        remedy = 'use bytes, such as "text".encode(), or post a request and have it encoded'
        raise ConfigurationError("Message.body", type(body), remedy)


class Delivery(_RedactedStruct, frozen=True, kw_only=True, eq=False, weakref=True):
    """One hand-over of a message by a broker, under a lease that must be settled.

    Compared by identity: the same message delivered twice is two deliveries. `attempt` is the
    provider's count, 1 at the first delivery. `lease_expires_at_s` is on the gateway's clock
    (`Clock.now_s`) and is what the broker granted at receipt; the lease keeper knows of
    extensions.
    """

    message: Message
    queue: str
    receipt: str
    attempt: int
    lease_expires_at_s: float
    is_ordered: bool = True
    """Whether the queue keeps the order of its group; False where a group means something else,
    as on SQS standard queues, whose groups are tenants that get their fair share."""
    broker_id: str | int | None = None
    """The provider's own id of what it stores: the same for every delivery of it, another one for
    a copy that is sent again. None where there is none."""
    native: str | None = None
    """How the provider typed the attributes of a message that another program sent, in words of
    its gateway. A routed copy carries it as the header `pumpNative`, so that it has the attributes
    again as they came. None where there is nothing that the message itself does not say."""
