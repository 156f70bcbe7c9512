"""Codec: what stands in a lease, in the tail and in a batch.

A lease is readable JSON; an empty object means that its message is done. A batch is
MessagePack: bodies are bytes, and stay as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite
from typing import NamedTuple

import attrs
import msgspec

from pump.errors import MappingError
from pump.message import Message
from pump.stores.packing import pack, unpack

from ..layout import QueueKeys

_VERSION = 1
DONE = b""
"""The body of a lease whose message is done: its size tells, also in a listing."""


class LeaseObject(msgspec.Struct, frozen=True, kw_only=True):
    """Which consumer has a message, or that it is free.

    `expires_s` is the store's time from which on another may claim it: the end of the lease, or,
    without an owner, the end of a delay; 0 for at once.
    """

    token: str
    """Names the claim: made anew by each, kept by renewals; empty without an owner."""
    owner: str
    expires_s: float
    attempt: int
    """Deliveries that count, the present one among them."""
    fence: int
    """Grows with every claim and never falls, as `attempt` may."""
    nonce: str
    """Made anew by each write: no two versions have equal bodies, hence equal ETags."""

    def __post_init__(self) -> None:
        if not isfinite(self.expires_s):
            raise ValueError("the store's time is not known yet: ask it something first")

    @property
    def is_held(self) -> bool:
        """Whether a consumer has it, or had it until it expired."""
        return bool(self.owner)


class Tail(msgspec.Struct, frozen=True):
    """The number that the next batch gets."""

    next: int
    nonce: str


@attrs.frozen
class BatchedMessage:
    """A message of a batch: packed, and from when on it may be seen (the store's time)."""

    packed: bytes = attrs.field(repr=False)
    visible_at_s: float = 0.0

    def open(self) -> Message:
        """The message itself."""
        return unpack(self.packed)

    @classmethod
    def of(cls, message: Message, visible_at_s: float = 0.0) -> BatchedMessage:
        """Pack a message."""
        return cls(pack(message), visible_at_s)


@attrs.frozen
class BatchContent:
    """What a batch holds, and when it was written (the store's time, at the latest)."""

    messages: Sequence[BatchedMessage]
    sent_at_s: float

    @property
    def size(self) -> int:
        """About how many bytes it takes in memory."""
        return sum(len(batched.packed) for batched in self.messages)


class _PackedBatch(msgspec.Struct, array_like=True, frozen=True):
    """Append fields with defaults; never change their order."""

    version: int
    sent_at_s: float
    messages: list[tuple[float, bytes]]


_json = msgspec.json.Encoder()
_msgpack = msgspec.msgpack.Encoder()
_decode_lease = msgspec.json.Decoder(LeaseObject).decode
_decode_tail = msgspec.json.Decoder(Tail).decode
_decode_batch = msgspec.msgpack.Decoder(_PackedBatch).decode


def encode_lease(lease: LeaseObject) -> bytes:
    """A lease as JSON."""
    return _json.encode(lease)


def decode_lease(body: bytes) -> LeaseObject:
    """The lease that was encoded; `MappingError` for anything else, an empty body too."""
    try:
        return _decode_lease(body)
    except (ValueError, RecursionError) as error:
        raise MappingError("lease", f"unreadable: {error}") from error


def encode_tail(tail: Tail) -> bytes:
    """A tail as JSON."""
    return _json.encode(tail)


def decode_tail(body: bytes) -> Tail:
    """The tail that was encoded; `MappingError` for anything else."""
    try:
        return _decode_tail(body)
    except (ValueError, RecursionError) as error:
        raise MappingError("tail", f"unreadable: {error}") from error


def encode_batch(content: BatchContent) -> bytes:
    """A batch as MessagePack."""
    messages = [(batched.visible_at_s, batched.packed) for batched in content.messages]
    return _msgpack.encode(_PackedBatch(_VERSION, content.sent_at_s, messages))


def decode_batch(body: bytes) -> BatchContent:
    """The batch that was encoded; `MappingError` for anything else."""
    try:
        packed = _decode_batch(body)
    except (ValueError, RecursionError) as error:
        raise MappingError("batch", f"unreadable: {error}") from error
    if packed.version != _VERSION:
        raise MappingError("batch", f"version {packed.version} is not known")
    messages = [BatchedMessage(each, visible_at_s) for visible_at_s, each in packed.messages]
    return BatchContent(messages, packed.sent_at_s)


# Names: a message of this layout is known by its batch's number and its place in the batch.

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
    """The object that says which consumer has a message."""
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
