"""Batches: written once under a number of their own, and removed when all in them is done.

The batch goes at once, with the bodies in it; the ends of its leases, which are empty, stay for as
long as a late copy of the batch's own write may still arrive: it would bring back messages of which
every reader sees that they are done. Then the batch is removed again, and after it the leases.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...store.driving import Steps
from ...store.objects import Found, Missing, Put, Remove, Removed, Written
from ..codec import Content, decode_batch
from .writing import Gone, Lost, Undecided, read, write

_MAX_KEYS = 1000
"""The most one removal takes."""


def put_batch(key: str, body: bytes, first_lease: str) -> Steps[bool | Undecided]:
    """Write a batch under a number that was taken for it. False when there is another one of
    that number, because the tail was lost: take a new number.

    A batch that is not there, whose first lease is, was written and is done: not written again.
    """
    put = Put(key, body, is_new=True)
    verdict = yield from write(
        put, lambda there: there.body == body, is_doubtful=True, witness=first_lease
    )
    match verdict:
        case Written() | Gone():
            # The number is ours: what was there and is gone was this batch, all of it done.
            return True
        case Lost():
            return False
        case Undecided():
            return verdict


def read_batch(key: str) -> Steps[Content | Missing | Undecided]:
    """What a batch holds; `Missing` when all of it is done. `MappingError` when unreadable."""
    there = yield from read(key)
    if isinstance(there, Found):
        return decode_batch(there.body)
    return there if isinstance(there, Undecided) else Missing()


def confirm(key: str) -> Steps[bool | Undecided]:
    """Whether the leases that were won before this are of messages that are not done.

    A batch is removed before its leases: while it is there, no lease of it was ever removed, so
    a lease that was not there was never there, and the first of each message is the first ever.
    """
    there = yield from read(key, has_body=False)
    return there if isinstance(there, Undecided) else isinstance(there, Found)


def clean_up(batches: Sequence[str], leases: Sequence[str]) -> Steps[bool]:
    """Remove batches of which all is done, then their leases, in this order; whether it is all
    gone. May be done by anyone, again, and left half done.
    """
    if not (yield from remove_all(batches)):
        return False
    return (yield from remove_all(leases))


def remove_all(keys: Sequence[str]) -> Steps[bool]:
    """Remove objects that a decision has made worthless; whether all are gone."""
    is_done = True
    for start in range(0, len(keys), _MAX_KEYS):
        reply = yield Remove(keys[start : start + _MAX_KEYS])
        is_done = is_done and isinstance(reply, Removed)
    return is_done
