"""Identity: how a dead letter is known again, and what it is sent as. Pure.

A *key* says which dead letter it is by what it holds: it is the same in the snapshot, however
that was taken, and in every delivery. An *entry* is the key with the broker's own id: two copies
of one dead letter have one key and are two entries, and each is sent and removed by itself. So is
a message that was sent, failed and was moved back by a broker that wrote nothing on it: it holds
what it held before, and only its entry is another.
"""

from __future__ import annotations

import hashlib
from collections.abc import Container

from msgspec.structs import replace

from ..headers import REJECTION_TIMESTAMP
from ..message import Delivery, Message

KEY_LENGTH = 32


def key_of(message: Message) -> str:
    """`KEY_LENGTH` characters from its id, the time of its rejection and its body."""
    timestamp = message.headers.get(REJECTION_TIMESTAMP, "")
    return _digest(message.id, timestamp, hashlib.sha256(message.body).hexdigest())


def entry_of(delivery: Delivery) -> str:
    """The key, with the broker's id of what it stores where it has one."""
    return with_broker_id(key_of(delivery.message), delivery.broker_id)


def with_broker_id(key: str, broker_id: str | int | None) -> str:
    """The entry of a key."""
    return key if broker_id is None else f"{key}:{broker_id}"


def is_among(entry: str, selected: Container[str]) -> bool:
    """Whether it was selected: by its entry, or its key where the snapshot saw no broker's id."""
    return entry in selected or entry[:KEY_LENGTH] in selected


def redriven(delivery: Delivery, target: str) -> Message:
    """The message that is sent: the dead letter as it is, with a de-duplication id of its own.

    The id is the same however often this dead letter is sent to this target, and another one
    after the message has become a dead letter again: a target would take it, and drop it.
    """
    return replace(
        delivery.message, deduplication_id=_digest("redrive", entry_of(delivery), target)
    )


def _digest(*parts: str) -> str:
    source = "\0".join(parts).encode("utf-8", "surrogatepass")
    return hashlib.sha256(source).hexdigest()[:KEY_LENGTH]
