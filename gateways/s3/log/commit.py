"""Committing: one conditional write of the head, as steps; and the segments that it may name.

| reply to the write             | it means                      | next                         |
|--------------------------------|-------------------------------|------------------------------|
| `WrittenObject`                | committed                     | apply it                     |
| `ConditionFailed`              | another was first             | follow the head, write again |
| `ConditionFailed`, may be ours | another was first, or we were | follow; ours if it is there  |
| `Unknown`                      | may have happened, or may yet | follow; ours if it is there  |
| `WriteConflict`                | nothing is decided            | write again                  |

A write that was given up can still arrive, but only over the very head it was made for. As long as
that stands, so does the doubt, and the same commit is written again: whichever arrives first makes
the other void. Once there is another head, without the commit, it can never be.
"""

from __future__ import annotations

from collections.abc import Callable
from math import isfinite
from typing import Protocol

import attrs
from msgspec import Raw

from pump.errors import ConnectionFailed, StorageFailed

from ..store.objects import (
    ConditionFailed,
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
from .entries import Base, CommitEntry, Head, Op, Piece, Sweep
from .follower import Follower, RetryBudget, fault, refresh, take_snapshot
from .state import MAX_WRITERS, Applied, Result, configure

ROLL_BYTES = 64 * 1024
"""When the recent entries of a head are larger, they become a piece of history."""
SNAPSHOT_BYTES = 1024 * 1024
"""When the history is larger than this, and than the last snapshot, there is another snapshot."""
_MAX_STALE = 200
"""How often others may be first before a commit is given up: far more than chance explains."""


class TimeBounds(Protocol):
    """Bounds of the server's time: `ServerTime`."""

    def earliest_s(self) -> float:
        """It is at least this late."""

    def latest_s(self) -> float:
        """It is at most this late."""


@attrs.frozen
class Draft:
    """What one process wants to commit together."""

    count: int
    """Of this writer's drafts, this is the count-th; each is committed at most once."""
    ops: tuple[Op, ...]


@attrs.frozen
class Committed:
    """It is in the log."""

    results: tuple[Result, ...] | None
    """Of each operation; None when a snapshot stood between us and the entry, so that it is known
    to have happened and not what came of it."""
    applied: Applied | None = None


NewNonce = Callable[[], str]


def commit(
    follower: Follower, draft: Draft, *, time: TimeBounds, new_nonce: NewNonce
) -> Steps[Committed]:
    """Commit a draft: once, wholly, or not at all. Raises when its outcome stays unknown, and
    then it may have happened, or happen yet.
    """
    budget = RetryBudget(follower.keys.head)
    if not follower.is_loaded:
        yield from refresh(follower)
    since = follower.replica.number
    while True:
        done = find_commit(follower, draft, since)
        if done is not None:
            return done
        entry = _entry(follower, draft, time)
        head, worthless = yield from _next_head(follower, entry, new_nonce, budget)
        reply = yield Put(
            follower.keys.head,
            codec.pack_head(head),
            if_match=follower.etag,
            is_new=follower.etag is None,
        )
        match reply:
            case WrittenObject(etag):
                follower.head, follower.etag = head, etag
                follower.litter += worthless
                return _committed(draft, follower.apply(entry))
            case WriteConflict():
                budget.spend(reply)
            case ConditionFailed():
                budget.spend_stale(_MAX_STALE)
                yield from refresh(follower)
            case Unknown():
                budget.spend(reply)
                yield from refresh(follower)


def find_commit(follower: Follower, draft: Draft, since: int) -> Committed | None:
    """Whether a draft of this writer, first written when entry `since` was the last, is in the
    log, as far as it was followed. Raises when that cannot be known any more.
    """
    name = f"{follower.writer}.{draft.count}"
    for applied in reversed(follower.news):
        if applied.entry.commit == name:
            return _committed(draft, applied)
    if follower.restored <= since:
        return None
    writers = follower.replica.writers
    if follower.writer not in writers and len(writers) >= MAX_WRITERS:
        raise ConnectionFailed(follower.keys.head, "after a long pause, a commit is past finding")
    return Committed(None) if writers.get(follower.writer, 0) >= draft.count else None


def _committed(draft: Draft, applied: Applied) -> Committed:
    # The first entry of a log has one operation more, in front.
    return Committed(applied.results[len(applied.results) - len(draft.ops) :], applied)


def _entry(follower: Follower, draft: Draft, time: TimeBounds) -> CommitEntry:
    replica = follower.replica
    at_s = max(replica.at_s, time.earliest_s())
    margin_s = max(0.0, time.latest_s() - at_s)
    if not isfinite(at_s + margin_s):
        raise StorageFailed(
            follower.keys.head, "the store's replies have no Date; leases need its time"
        )
    is_first = follower.head is None
    ops = (configure(follower.settings), *draft.ops) if is_first else draft.ops
    return CommitEntry(replica.number + 1, follower.writer, draft.count, at_s, margin_s, ops)


def _next_head(
    follower: Follower, entry: CommitEntry, new_nonce: NewNonce, budget: RetryBudget
) -> Steps[tuple[Head, list[str]]]:
    """The head with one more entry, and the keys that it makes worthless. What it names is written
    already when this returns.
    """
    packed, nonce, known = codec.pack_entry(entry), new_nonce(), follower.head
    if known is None:
        return Head(nonce, nonce, entry.number, None, (), (packed,)), []
    base, rolled, recent = known.base, known.rolled, known.recent
    worthless: list[str] = []
    if _size(recent) > ROLL_BYTES:
        if _needs_snapshot(known):
            worthless = [piece.key for piece in rolled]
            worthless += [base.key] if base is not None else []
            base, rolled = (yield from _write_snapshot(follower, known, budget)), ()
        else:
            rolled = (*rolled, (yield from _roll(follower, known, budget)))
        recent = ()
    head = Head(known.log, nonce, entry.number, base, rolled, (*recent, packed))
    return head, worthless


def _needs_snapshot(head: Head) -> bool:
    size = sum(piece.size for piece in head.rolled)
    return size > max(SNAPSHOT_BYTES, head.base.size if head.base is not None else 0)


def _roll(follower: Follower, head: Head, budget: RetryBudget) -> Steps[Piece]:
    first, last = head.number - len(head.recent) + 1, head.number
    key = f"{follower.keys.history}{head.log}/{first:016d}-{last:016d}"
    yield from _write_once(key, codec.pack_history(head.recent), budget)
    return Piece(key, first, last, _size(head.recent))


def _write_snapshot(follower: Follower, head: Head, budget: RetryBudget) -> Steps[Base]:
    key = f"{follower.keys.history}{head.log}/{head.number:016d}-state"
    body = codec.pack_snapshot(take_snapshot(follower.replica))
    yield from _write_once(key, body, budget)
    return Base(key, head.number, len(body))


def _write_once(key: str, body: bytes, budget: RetryBudget) -> Steps[None]:
    """Write what the log already decides: every process writes the same under this key."""
    while True:
        reply = yield Put(key, body, is_new=True)
        match reply:
            case WrittenObject() | ConditionFailed():
                return
            case WriteConflict() | Unknown():
                budget.spend(reply)


def _size(recent: tuple[Raw, ...]) -> int:
    return sum(len(memoryview(packed)) for packed in recent)


# Segments: objects that hold bodies, written before the entry that names them, and swept.
#
# A segment is written once, under a key of its own, and named by one operation only; it goes with
# its last message. One that no entry came to name is litter, but looks like one whose entry is on
# its way. So a sweep first commits that no segment written before a moment may be named
# any more, and removes what was written before it and is not named then.


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
