"""Recovery: from the file back to an engine's memory.

Everything is restored as it was, leases included; then the leases of owners that are dead end
(T4), and those whose time is over end by the clock, each counted as an attempt. A message
therefore reaches its `max_receive_count` also when every delivery kills the process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from sqlite3 import Row

import attrs

from pump.clock import Clock
from pump.errors import MappingError, QueueNotFound, StorageFailed

from .._engine.engine import QueueEngine
from .._engine.record import DELAYED, LEASED, READY, LeaseBatch, LockedSession, Record
from .._sqlite.database import Database
from . import codec
from .journal import CLOCK_TABLE, LATEST


@attrs.define
class Recovered:
    """What the file said beyond the queues themselves."""

    owners: set[str] = attrs.field(factory=set)
    """Clients that held a lease or a session, or had requests answered."""
    void_leases: list[str] = attrs.field(factory=list)
    """Rows under which nothing is leased any more."""
    replies: dict[tuple[str, int], bytes] = attrs.field(factory=dict)
    """Answers to remote requests that may be asked for again."""
    boot_id: str = ""
    offset_s: float = 0.0
    """Between the file's times and the monotonic clock of this run of the machine."""


async def recover(engine: QueueEngine, database: Database) -> Recovered:
    """Fill an empty engine from the file. Leases of dead owners are the caller's to end.

    A message that is no longer what was sent is restored with the header that says so.
    `StorageFailed` when another row cannot be read, or a message is a later release's.
    """
    await database.read(lambda connection: connection.execute(CLOCK_TABLE))
    rows = _RecoveredRows(
        clocks=await database.rows("SELECT boot, offset_s FROM clock"),
        queues=await database.rows("SELECT settings FROM queues ORDER BY name"),
        messages=await database.rows(
            "SELECT seq, queue, attempt, due_s, sent_s, packed FROM messages ORDER BY seq"
        ),
        leases=await database.rows("SELECT id, owner, request, expires_s, members FROM leases"),
        sessions=await database.rows(
            # Of two locks of one group, the first's end could not be written: the last one counts.
            "SELECT id, queue, owner, request, expires_s, session FROM sessions ORDER BY expires_s"
        ),
        numbers=await database.rows("SELECT seq FROM sqlite_sequence WHERE name = 'messages'"),
        seen=await database.rows("SELECT queue, key, until_s FROM seen ORDER BY until_s"),
        replies=await database.rows("SELECT owner, request, reply FROM replies"),
    )
    # The engine is not shared yet, and a million messages would stop the loop for seconds.
    try:
        return await asyncio.to_thread(_fill, engine, rows)
    except (MappingError, QueueNotFound) as error:
        raise StorageFailed(
            str(database.path),
            f"a row cannot be read ({error}); nothing was changed: use the release that wrote it, "
            f"restore a copy, or move the folder away",
        ) from error


@attrs.frozen
class _RecoveredRows:
    clocks: Iterable[Row]
    queues: Iterable[Row]
    messages: Iterable[Row]
    leases: Iterable[Row]
    sessions: Iterable[Row]
    numbers: Iterable[Row]
    seen: Iterable[Row]
    replies: Iterable[Row]


def _fill(engine: QueueEngine, rows: _RecoveredRows) -> Recovered:
    for (packed,) in rows.queues:
        engine.admit(codec.unpack_settings(packed))
    for waiters in engine.waiters_by_queue.values():
        target = waiters.state.settings.dead_letter_queue
        if target is not None:
            engine.waiters_of(target)
    restorer = _RowRestorer(engine.clock, {row[0]: row[1] for row in rows.clocks})
    by_queue = restorer.records(rows.messages)
    recovered = restorer.lease(rows.leases, by_queue)
    locks = restorer.locks(rows.sessions)
    recovered.boot_id, recovered.offset_s = restorer.boot_id, -restorer.offset_s
    recovered.owners |= {lock.owner for each in locks.values() for lock in each}
    for queue in by_queue.keys() | locks.keys():
        state, records = engine.waiters_of(queue).state, by_queue.get(queue, {})
        restorer.hold_the_dead(records.values(), state.settings.max_receive_count)
        state.restore(records.values(), locks.get(queue, ()))
    for queue, key, until_s in rows.seen:
        window = engine.waiters_of(queue).state.deduplication
        window.remember(key, restorer.monotonic_s(until_s))
    for owner, request, reply in rows.replies:
        recovered.owners.add(owner)
        recovered.replies[owner, request] = reply
    engine.next_seq = 1 + max([restorer.highest_seq, *(seq for (seq,) in rows.numbers)])
    return recovered


class _RowRestorer:
    """Rows to records, Unix times to the clock's.

    As long as the machine runs, its monotonic clock decides, and setting the wall clock changes
    nothing. After that only the wall clock is left: set back, it would put messages off by as much,
    so time goes on from the latest that the file has seen.
    """

    def __init__(self, clock: Clock, offsets: dict[str, float]) -> None:
        self._now_s = clock.now_s()
        self.boot_id = clock.boot_id()
        known_s = offsets.get(self.boot_id) if self.boot_id else None
        self._is_same_boot = known_s is not None
        seen_s = max(clock.time_s(), offsets.get(LATEST, 0.0))
        self.offset_s = self._now_s - seen_s if known_s is None else -known_s
        self.highest_seq = 0

    def monotonic_s(self, unix_s: float) -> float:
        return unix_s + self.offset_s

    def _due_s(self, due_s: float, sent_s: float) -> float:
        if not due_s:
            return 0.0
        restored_s = due_s + self.offset_s
        if self._is_same_boot or due_s <= sent_s:
            return restored_s
        # It was delayed when it was sent, or later: all that the file of an older release tells.
        return min(restored_s, self._now_s + due_s - sent_s)

    def records(self, rows: Iterable[Row]) -> dict[str, dict[int, Record]]:
        by_queue: dict[str, dict[int, Record]] = {}
        for seq, queue, attempt, due_s, sent_s, packed in rows:
            message = codec.unpack_checked(packed, seq)
            record = Record(seq, message, sent_s + self.offset_s, None, attempt)
            record.due_s = self._due_s(due_s, sent_s)
            record.phase = DELAYED if record.due_s > self._now_s else READY
            by_queue.setdefault(queue, {})[seq] = record
            self.highest_seq = seq
        return by_queue

    def lease(self, rows: Iterable[Row], by_queue: dict[str, dict[int, Record]]) -> Recovered:
        known = {seq: record for records in by_queue.values() for seq, record in records.items()}
        batches: dict[str, LeaseBatch] = {}
        for batch_id, owner, request, expires_s, members in rows:
            batch = LeaseBatch(batch_id, owner, expires_s + self.offset_s, request)
            batches[batch_id] = batch
            for seq, attempt, receipt in codec.unpack_members(batch_id, members):
                self.highest_seq = max(self.highest_seq, seq)
                record = known.get(seq)
                # A lease whose attempt the message already counts was settled or has lapsed.
                if record is not None and record.attempt < attempt:
                    record.attempt = attempt
                    record.phase = LEASED
                    record.receipt = receipt
                    record.batch = batch
        live = {record.batch.id for record in known.values() if record.batch is not None}
        return Recovered(
            owners={batch.owner for batch in batches.values()},
            void_leases=[batch_id for batch_id in batches if batch_id not in live],
        )

    def locks(self, rows: Iterable[Row]) -> dict[str, list[LockedSession]]:
        by_queue: dict[str, list[LockedSession]] = {}
        for token, queue, owner, request, expires_s, group in rows:
            lock = LockedSession(token, group, owner, expires_s + self.offset_s, request)
            by_queue.setdefault(queue, []).append(lock)
        return by_queue

    def hold_the_dead(self, records: Iterable[Record], limit: int | None) -> None:
        """Lease, without an owner, those that a crash caught between last delivery and move:
        the end of that lease moves them.
        """
        for record in records:
            if limit is not None and record.attempt >= limit and record.phase != LEASED:
                record.phase = LEASED
                record.receipt = f"recovered.{record.seq}"
                record.batch = LeaseBatch(record.receipt, "", self._now_s)
