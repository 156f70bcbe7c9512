"""Segments: objects that hold bodies, written before the entry that names them, and swept.

A segment is written once, under a key of its own, and named by one operation only; it goes with
its last message. One that no entry came to name is litter, but looks like one whose entry is on
its way. So a sweep first commits that no segment written before a moment may be named
any more, and removes what was written before it and is not named then.
"""

from __future__ import annotations

from collections.abc import Callable

from ..store.objects import (
    FoundObject,
    Get,
    List,
    Missing,
    Page,
    Put,
    Steps,
    Unknown,
    WriteConflict,
    WrittenObject,
)
from . import codec
from .commit import Draft, NewNonce, TimeBounds, commit
from .entries import Sweep
from .follower import Follower, RetryBudget, fault


def write_segment(key: str, body: bytes) -> Steps[None]:
    """Write a segment under a key of its own."""
    budget = RetryBudget(key)
    while True:
        reply = yield Put(key, body)
        match reply:
            case WrittenObject():
                return
            case WriteConflict() | Unknown():
                budget.spend(reply)
            case _:
                budget.spend(fault(reply))


def read_segment(key: str) -> Steps[list[bytes] | None]:
    """The packed messages of a segment, by their place; None when it is gone."""
    budget = RetryBudget(key)
    while True:
        reply = yield Get(key)
        match reply:
            case FoundObject(_, body):
                return codec.unpack_segment(body, key)
            case Missing():
                return None
            case _:
                budget.spend(fault(reply))


def sweep(
    follower: Follower,
    before_s: float,
    *,
    draft_count: Callable[[], int],
    time: TimeBounds,
    new_nonce: NewNonce,
) -> Steps[int]:
    """Remove what was written before then and is of no use; returns how many there were.

    `before_s` should be long ago: a send whose segment is older fails. Commits only when there is
    something to remove.
    """
    old = [*(yield from _old(follower.keys.segments, before_s))]
    old += yield from _old(follower.keys.history, before_s)
    if not [key for key in old if key not in _named(follower)]:
        return 0
    # It also ends every commit that was built on an older head, and so might still name a piece
    # of history that no head has named yet.
    draft = Draft(draft_count(), (Sweep(before_s),))
    yield from commit(follower, draft, time=time, new_nonce=new_nonce)
    named = _named(follower)
    worthless = [key for key in old if key not in named]
    follower.litter += worthless
    return len(worthless)


def _old(prefix: str, before_s: float) -> Steps[list[str]]:
    budget, after = RetryBudget(prefix), ""
    old: list[str] = []
    while True:
        reply = yield List(prefix, after)
        match reply:
            case Page(entries, is_last):
                old += [each.key for each in entries if each.modified_s < before_s]
                if is_last or not entries:
                    return old
                after = entries[-1].key
            case _:
                budget.spend(fault(reply))


def _named(follower: Follower) -> set[str]:
    named = {follower.segment_key(segment) for segment in follower.replica.segments}
    head = follower.head
    if head is not None:
        named.update(piece.key for piece in head.rolled)
        if head.base is not None:
            named.add(head.base.key)
    return named
