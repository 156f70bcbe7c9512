"""Following: a replica kept up with the head, as steps.

| the head                       | is followed by                                           |
|--------------------------------|----------------------------------------------------------|
| is the one that is known       | nothing: one `Get` that answers 304                      |
| holds all that is missing      | its recent entries: one `Get`                            |
| has rolled some of it away     | those pieces of history, then its recent entries         |
| is past what history there is  | its snapshot, the pieces since, its recent entries       |
| names what is gone             | the next head: its remover has committed another         |
| is gone, or of another log     | a new replica: the queue was removed                     |
"""

from __future__ import annotations

from collections.abc import Iterable

import attrs
from msgspec import Raw

from pump.errors import GatewayError, StorageFailed, Throttled

from ..._engine.record import LEASED, EngineSettings, LeaseBatch, Record
from ..layout import QueueKeys
from ..store.objects import FoundObject, Get, Missing, Remove, Same, Steps, Unknown, WriteConflict
from . import codec
from .entries import CommitEntry, Head, Keep, Snapshot, SnapshotLease
from .state import (
    Applied,
    Replica,
    configure,
    keep_locks,
    make_stub,
    restore_locks,
    settings_of,
    stub,
)

MAX_FAULTS = 6
"""How many unanswered requests a protocol allows; the shell pauses after each."""
_MAX_BUSY = 50
_MAX_STALE = 20
"""How often the head may move on while its history is being read."""
_REMOVED_AT_ONCE = 1000


@attrs.define(kw_only=True, eq=False)
class Follower:
    """What one process knows of a queue's log. Steps change it, one protocol at a time; left at
    any step, it is still true.
    """

    keys: QueueKeys
    settings: EngineSettings
    """What the queue will be like if its log is not begun yet."""
    writer: str
    """A name that is unique for ever."""
    replica: Replica = attrs.field(init=False)
    head: Head | None = None
    etag: str | None = None
    """The head's; None when there is none, or before the first look."""
    is_loaded: bool = False
    """Whether the replica is at the head that is known."""
    restored: int = 0
    """The number of the entry whose snapshot it last started from: what came of those before is
    not in the news."""
    news: list[Applied] = attrs.field(factory=list)
    """What was applied since the last `take_applied`."""
    litter: list[str] = attrs.field(factory=list)
    """Keys that entries of ours have made worthless."""

    def __attrs_post_init__(self) -> None:
        self.replica = Replica(self.settings)

    def apply(self, entry: CommitEntry) -> Applied:
        """Apply an entry that is decided."""
        applied = self.replica.apply(entry)
        self.news.append(applied)
        if entry.writer == self.writer:
            self.litter += [self.segment_key(segment) for segment in applied.emptied]
        return applied

    def take_applied(self) -> list[Applied]:
        """What was applied since the last call."""
        news, self.news = self.news, []
        return news

    def segment_key(self, segment: str) -> str:
        """Where the bodies of a segment are."""
        return f"{self.keys.segments}{segment}"

    def start_anew(self) -> None:
        """Forget a log that is no more."""
        self.replica = Replica(self.settings)
        self.head, self.etag = None, None


@attrs.define
class RetryBudget:
    """Counts what went wrong in one protocol, and ends it when it is enough."""

    target: str
    faults: int = 0
    busy: int = 0
    stale: int = 0

    def spend(self, fault: Unknown | WriteConflict) -> None:
        """Count a request that was not answered, or not decided."""
        if isinstance(fault, WriteConflict):
            self.busy += 1
            if self.busy >= _MAX_BUSY:
                raise Throttled(self.target)
            return
        self.faults += 1
        if self.faults >= MAX_FAULTS:
            raise fault.error

    def spend_stale(self, max_count: int = _MAX_STALE) -> None:
        """Count another's commit that came first."""
        self.stale += 1
        if self.stale >= max_count:
            raise Throttled(self.target)


def refresh(follower: Follower) -> Steps[bool]:
    """Follow the head; returns whether there was anything new. Raises what stays unanswered."""
    budget = RetryBudget(follower.keys.head)
    tried: str | None = None
    while True:
        reply = yield Get(follower.keys.head, unless=follower.etag)
        match reply:
            case Same():
                follower.is_loaded = True
                return False
            case Missing():
                is_new = follower.head is not None
                follower.start_anew()
                follower.is_loaded = True
                return is_new
            case FoundObject(etag, body):
                # Left half way, it has applied more than the head it knows.
                follower.is_loaded = False
                head = codec.unpack_head(body, follower.keys.head)
                gone = yield from _follow(follower, head, budget)
                if gone is None:
                    follower.head, follower.etag, follower.is_loaded = head, etag, True
                    return True
                if tried == etag:
                    raise _damaged(gone, "the head names it, and it is not there")
                tried = etag
                budget.spend_stale()
            case _:
                budget.spend(fault(reply))


def _follow(follower: Follower, head: Head, budget: RetryBudget) -> Steps[str | None]:
    """Apply what the head says; returns the key of what was gone, if something was."""
    known = follower.head
    if known is None or known.log != head.log or head.number < follower.replica.number:
        follower.start_anew()
    base = head.base
    if base is not None and follower.replica.number < base.number:
        body = yield from _read(base.key, budget)
        if body is None:
            return base.key
        snapshot = codec.unpack_snapshot(body, base.key)
        follower.replica = restore(snapshot, follower.settings.name)
        follower.restored = snapshot.number
    for piece in head.rolled:
        if piece.last > follower.replica.number:
            body = yield from _read(piece.key, budget)
            if body is None:
                return piece.key
            _apply_from(follower, codec.unpack_history(body, piece.key), piece.first, piece.key)
    first = head.number - len(head.recent) + 1
    _apply_from(follower, head.recent, first, follower.keys.head)
    if follower.replica.number != head.number:
        raise _damaged(follower.keys.head, f"entry {follower.replica.number + 1} is missing")
    follower.head = head
    return None


def _apply_from(follower: Follower, entries: tuple[Raw, ...], first: int, key: str) -> None:
    for packed in entries[max(0, follower.replica.number + 1 - first) :]:
        follower.apply(codec.unpack_entry(packed, key))


def _read(key: str, budget: RetryBudget) -> Steps[bytes | None]:
    while True:
        reply = yield Get(key)
        match reply:
            case FoundObject(_, body):
                return body
            case Missing():
                return None
            case _:
                budget.spend(fault(reply))


def clean(follower: Follower) -> Steps[None]:
    """Remove what entries of ours have made worthless. May be left undone: a sweep finds it."""
    while follower.litter:
        keys = follower.litter[:_REMOVED_AT_ONCE]
        del follower.litter[:_REMOVED_AT_ONCE]
        yield Remove(keys)


def fault(reply: object) -> Unknown | WriteConflict:
    """What a reply that decides nothing says."""
    if isinstance(reply, Unknown | WriteConflict):
        return reply
    return Unknown(_Unexpected(f"a reply of {type(reply).__name__} makes no sense here"))


class _Unexpected(GatewayError):
    """A store that answers one request with the reply to another."""


def _damaged(key: str, why: str) -> StorageFailed:
    return StorageFailed(
        key,
        f"the log is damaged: {why}. Something else removed objects of this queue (a lifecycle "
        f"rule?); restore them, or remove the queue and make it again",
    )


# Snapshots: a whole replica as a value, and back.


def take_snapshot(replica: Replica) -> Snapshot:
    """All that a replica must know to go on; equal for equal histories."""
    segments = tuple(replica.segments)
    places = {segment: place for place, segment in enumerate(segments)}
    records = replica.queue.records.values()
    return Snapshot(
        number=replica.number,
        at_s=replica.at_s,
        next_number=replica.next_number,
        swept_s=replica.swept_s,
        settings=configure(replica.settings),
        segments=segments,
        kept=tuple(_keep(record, places) for record in records),
        leases=tuple(_leases(records)),
        seen=tuple(replica.queue.deduplication.remembered(replica.at_s)),
        writers=tuple(replica.writers.items()),
        dead=tuple(replica.dead.items()),
        locks=keep_locks(replica.queue),
    )


def restore(snapshot: Snapshot, name: str) -> Replica:
    """The replica of a queue that a snapshot was taken of."""
    replica = Replica(settings_of(snapshot.settings, name))
    replica.number, replica.at_s = snapshot.number, snapshot.at_s
    replica.next_number, replica.swept_s = snapshot.next_number, snapshot.swept_s
    replica.segments = dict.fromkeys(snapshot.segments, 0)
    replica.writers = dict(snapshot.writers)
    replica.dead = dict(snapshot.dead)
    records = {keep.number: _record(keep, snapshot.segments) for keep in snapshot.kept}
    for record in records.values():
        replica.segments[stub(record).segment] += 1
    for lease in snapshot.leases:
        batch = LeaseBatch(lease.id, lease.owner, lease.expires_s)
        for number, receipt in zip(lease.numbers, lease.receipts, strict=True):
            records[number].batch = batch
            records[number].receipt = receipt or f"{lease.id}.{number}"
    replica.queue.restore(records.values(), restore_locks(snapshot.locks))
    for key, until_s in snapshot.seen:
        replica.queue.deduplication.remember(key, until_s)
    return replica


def _keep(record: Record, places: dict[str, int]) -> Keep:
    kept = stub(record)
    return Keep(
        record.seq,
        places[kept.segment],
        kept.place,
        record.sent_at_s,
        record.attempt,
        record.phase,
        record.due_s,
        kept.group,
    )


def _record(keep: Keep, segments: tuple[str, ...]) -> Record:
    message = make_stub(segments[keep.segment], keep.place, keep.group)
    return Record(keep.number, message, keep.sent_at_s, None, keep.attempt, keep.phase, keep.due_s)


def _leases(records: Iterable[Record]) -> Iterable[SnapshotLease]:
    """Lease batches by their oldest message; the order of those in a batch does not count."""
    batches: dict[str, tuple[LeaseBatch, list[Record]]] = {}
    for record in records:
        if record.phase == LEASED and record.batch is not None:
            batches.setdefault(record.batch.id, (record.batch, []))[1].append(record)
    for batch, members in batches.values():
        yield SnapshotLease(
            batch.id,
            batch.owner,
            batch.expires_s,
            tuple(record.seq for record in members),
            tuple(_odd_receipt(batch, record) for record in members),
        )


def _odd_receipt(batch: LeaseBatch, record: Record) -> str:
    return "" if record.receipt == f"{batch.id}.{record.seq}" else record.receipt
