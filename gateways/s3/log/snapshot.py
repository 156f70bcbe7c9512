"""Snapshots: a whole replica as a value, and back."""

from __future__ import annotations

from collections.abc import Iterable

from ..._engine.record import LEASED, LeaseBatch, Record
from .entries import Keep, Lease, Snapshot
from .session_state import keep_locks, restore_locks
from .state import Replica, configure, make_stub, settings_of, stub


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


def _leases(records: Iterable[Record]) -> Iterable[Lease]:
    """Lease batches by their oldest message; the order of those in a batch does not count."""
    batches: dict[str, tuple[LeaseBatch, list[Record]]] = {}
    for record in records:
        if record.phase == LEASED and record.batch is not None:
            batches.setdefault(record.batch.id, (record.batch, []))[1].append(record)
    for batch, members in batches.values():
        yield Lease(
            batch.id,
            batch.owner,
            batch.expires_s,
            tuple(record.seq for record in members),
            tuple(_odd_receipt(batch, record) for record in members),
        )


def _odd_receipt(batch: LeaseBatch, record: Record) -> str:
    return "" if record.receipt == f"{batch.id}.{record.seq}" else record.receipt
