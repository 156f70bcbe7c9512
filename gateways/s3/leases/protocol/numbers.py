"""Numbers: each batch gets one of its own, greater than all that were taken before."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import attrs

from pump.errors import GatewayError, Throttled

from ...keys import QueueKeys
from ...store.driving import Steps
from ...store.objects import Found, Put, Written
from ..codec import Tail, decode_tail, encode_tail
from ..names import batch_of, message_of
from .listing import survey
from .writing import Lost, Undecided, read, write

_MAX_ROUNDS = 50
"""Whoever loses a round has seen another win it: only a crowd of senders gets this far."""


@attrs.frozen
class KnownTail:
    """The tail as this process last saw it: saves reading it."""

    next: int
    etag: str | None
    """None when there is none yet."""


@attrs.frozen
class Numbers:
    """Numbers from `first` on are the caller's, and the tail as it is now."""

    first: int
    tail: KnownTail


def take_numbers(
    keys: QueueKeys, count: int, known: KnownTail | None, new_nonce: Callable[[], str]
) -> Steps[Numbers | Undecided]:
    """Take so many numbers in a row. Numbers that are taken and never used do no harm."""
    error: GatewayError = Throttled(keys.tail)
    for _ in range(_MAX_ROUNDS):
        if known is None:
            there = yield from _read_tail(keys)
            if isinstance(there, Undecided):
                return there
            known = there
        body = encode_tail(Tail(known.next + count, new_nonce()))
        put = Put(keys.tail, body, if_match=known.etag, is_new=known.etag is None)
        verdict = yield from write(put, partial(_is_same, body))
        match verdict:
            case Written(etag=etag):
                return Numbers(known.next, KnownTail(known.next + count, etag))
            case Undecided():
                return verdict
            case Lost(found=Found() as found):
                known = _tail(found)
            case _:
                known = None
    return Undecided(error)


def _read_tail(keys: QueueKeys) -> Steps[KnownTail | Undecided]:
    there = yield from read(keys.tail)
    if isinstance(there, Found):
        return _tail(there)
    if isinstance(there, Undecided):
        return there
    # No number was ever taken, or somebody removed the tail: none may be taken twice, nor one of
    # which an end is left, or its messages would be taken for done.
    seen = yield from survey(keys)
    if isinstance(seen, Undecided):
        return seen
    batches = [batch.number for entry in seen[0] if (batch := batch_of(keys, entry.key))]
    leases = [message.number for entry in seen[1] if (message := message_of(keys, entry.key))]
    return KnownTail(max([*batches, *leases], default=0) + 1, None)


def _tail(found: Found) -> KnownTail:
    return KnownTail(decode_tail(found.body).next, found.etag)


def _is_same(body: bytes, there: Found) -> bool:
    return there.body == body
