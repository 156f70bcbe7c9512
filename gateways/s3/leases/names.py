"""Names: a message of this layout is known by its batch's number and its place in the batch."""

from __future__ import annotations

from typing import NamedTuple

import attrs

from ..keys import QueueKeys

_NUMBER_DIGITS = 16
_PLACE_DIGITS = 3
_LEASE = "/lease.json"


class MessageId(NamedTuple):
    """Where a message stands: ids sort as messages were sent, and none is ever used again."""

    number: int
    place: int

    def __str__(self) -> str:
        return f"{self.number:0{_NUMBER_DIGITS}d}.{self.place:0{_PLACE_DIGITS}d}"


@attrs.frozen
class BatchId:
    """A batch by its number; how many messages it has is part of its key, so that a listing
    counts them.
    """

    number: int
    count: int

    def __str__(self) -> str:
        return f"{self.number:0{_NUMBER_DIGITS}d}-{self.count}"


def batch_key(keys: QueueKeys, batch: BatchId) -> str:
    """The object that holds a batch."""
    return f"{keys.messages}{batch}"


def lease_key(keys: QueueKeys, message: MessageId) -> str:
    """The object that says who has a message."""
    return keys.lease(str(message))


def lease_keys(keys: QueueKeys, batch: BatchId) -> list[str]:
    """The leases that a batch can have."""
    return [lease_key(keys, MessageId(batch.number, place)) for place in range(batch.count)]


def before_batch(keys: QueueKeys, number: int) -> str:
    """The key behind which a listing of batches begins with this number."""
    return f"{keys.messages}{number:0{_NUMBER_DIGITS}d}"


def before_leases(keys: QueueKeys, number: int) -> str:
    """The key behind which a listing of leases begins with those of this number."""
    return f"{keys.pending}{number:0{_NUMBER_DIGITS}d}"


def batch_of(keys: QueueKeys, key: str) -> BatchId | None:
    """The batch whose key this is; None for what is not one of ours."""
    number, dash, count = key.removeprefix(keys.messages).partition("-")
    return BatchId(int(number), int(count)) if dash and _are_digits(number, count) else None


def message_of(keys: QueueKeys, key: str) -> MessageId | None:
    """The message whose lease this is; None for what is not one of ours."""
    name = key.removeprefix(keys.pending)
    number, dot, place = name.removesuffix(_LEASE).partition(".")
    is_ours = dot and name.endswith(_LEASE) and _are_digits(number, place)
    return MessageId(int(number), int(place)) if is_ours else None


def _are_digits(*texts: str) -> bool:
    return all(text.isascii() and text.isdigit() for text in texts)
