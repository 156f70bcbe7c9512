"""A desk: an open `Encryption` with what it counts and tells, and messages to try it on."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import attrs
import pytest
from msgspec.structs import replace

from pump.crypto import Encryption, NonceReused
from pump.events import Event
from pump.message import Delivery, Message
from pump.observability.telemetry import Counters
from pump.testing.builders import a_delivery

BODY = b'{"order":"4711"}'
MESSAGE = Message(
    body=BODY,
    id="0197-0001",
    type="PlaceOrder",
    content_type="application/vnd.orders+json",
    correlation_id="c-1",
    reply_to="answers",
    group="customer-7",
    deduplication_id="d-1",
    created_at_s=1_750_000_000.0,
    headers={"tenant": "blue"},
)
"""A message with something in every field."""
PLAIN = Message(body=b"{}", id="plain-1", type="Order")
"""A message that nobody has sealed."""
Log = list[MutableMapping[str, Any]]


@attrs.frozen(eq=False)
class Desk:
    """An open encryption."""

    encryption: Encryption
    counters: Counters
    events: list[Event]

    async def seal(
        self, message: Message = MESSAGE, *, queue: str = "orders", is_ready_made: bool = False
    ) -> Message:
        return await self.encryption.encrypt(message, queue, is_ready_made=is_ready_made)

    async def open(self, message: Message, **fields: Any) -> Message:
        """What a handler would get, of a first delivery."""
        return await self.encryption.decrypt(delivered(message, **fields))


OpenDesk = Callable[[Encryption], Awaitable[Desk]]


def delivered(message: Message, **fields: Any) -> Delivery:
    """The message in hand, as a broker delivers it."""
    return replace(a_delivery(message), **fields)


def changed(message: Message, **fields: Any) -> Message:
    """The message with other fields."""
    return replace(message, **fields)


async def accept(desk: Desk, message: Message, **fields: Any) -> Delivery:
    """Deliver the message, and see that it is accepted."""
    delivery = delivered(message, **fields)
    assert await desk.encryption.decrypt(delivery) == MESSAGE
    return delivery


async def refuse(desk: Desk, message: Message, **fields: Any) -> Delivery:
    """Deliver the message, and see that it is refused as a replay."""
    delivery = delivered(message, **fields)
    with pytest.raises(NonceReused, match=MESSAGE.id):
        await desk.encryption.decrypt(delivery)
    return delivery


def counts(counters: Counters, name: str) -> dict[str, int]:
    """What was counted of encrypted messages, and of others."""
    return {value: counters.value(name, encrypted=value) for value in ("true", "false")}


def lines(log: Log, event: str) -> list[tuple[str, str]]:
    """The level and the message of each line of an event."""
    return [(line["log_level"], line["message_id"]) for line in log if line["event"] == event]
