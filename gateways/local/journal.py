"""The journal on disk: what an engine must not forget, and the way back to its memory."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from sqlite3 import Row
from typing import assert_never

import attrs

from pump import headers
from pump.clock import Clock
from pump.errors import MappingError, QueueNotFound, StorageFailed
from pump.message import Message

from .._engine.engine import QueueEngine
from .._engine.journal import (
    AnsweredRequest,
    Declared,
    Done,
    Entry,
    Extended,
    Forgotten,
    Lapsed,
    Leased,
    Locked,
    MovedEntry,
    PurgedEntry,
    Renewed,
    SentEntry,
    Settled,
    Unlocked,
)
from .._engine.record import DELAYED, LEASED, READY, Lapse, LeaseBatch, LockedSession, Record
from .._sqlite.database import Database, Schema, Statement
from .._sqlite.group_commit import GroupCommit
from .._sqlite.reserve import DiskReserve
from . import codec


class SqliteJournal(GroupCommit):
    """Group commit of an engine's entries. The last of the disk is for receives and acks."""

    def __init__(
        self, database: Database, clock: Clock, *, reserve_bytes: int | None = None
    ) -> None:
        super().__init__(database)
        self._database = database
        self._journal_writer = JournalWriter(clock)
        self._reserve = DiskReserve(database, self, reserve_bytes)

    def write(self, entry: Entry, done: Done) -> asyncio.Future[None]:
        return self.append(self._journal_writer.statements_of(entry), done)

    async def keep_time(self, boot_id: str, offset_s: float) -> None:
        """Go on with the offset between Unix and monotonic times that the file has; before
        `start`.
        """
        await self._database.commit(self._journal_writer.keep_time(boot_id, offset_s))

    def has_room(self, messages: Sequence[Message]) -> bool:
        """Whether they fit, as far as is known, without what is kept for receives and acks."""
        return self._reserve.has_room(
            len(messages), _size_of(messages), is_routed=_are_routed(messages)
        )

    async def require_room(self, messages: Sequence[Message]) -> None:
        """Measure anew, and raise `StorageFull` unless they fit."""
        await self._reserve.require_room(
            len(messages), _size_of(messages), is_routed=_are_routed(messages)
        )


# Lists, for a generator would cost more than what it is asked for.


def _size_of(messages: Sequence[Message]) -> int:
    return sum([len(each.body) for each in messages])


def _are_routed(messages: Sequence[Message]) -> bool:
    return not [each for each in messages if headers.REJECTION_REASON not in each.headers]


# A journal entry as SQL statements, made at once, for records change afterwards.

_INSERT_MESSAGES = "INSERT INTO messages VALUES"
_MESSAGE = "(?, ?, ?, ?, ?, ?)"
_DELETE_MESSAGES = "DELETE FROM messages WHERE seq BETWEEN ? AND ?"
_RETURN_MESSAGE = "UPDATE messages SET attempt = ?, due_s = ? WHERE seq = ?"
_COUNT_ATTEMPT = "UPDATE messages SET attempt = ? WHERE seq = ?"
_INSERT_LEASE = "INSERT OR REPLACE INTO leases VALUES (?, ?, ?, ?, ?, ?)"
_EXTEND_LEASE = "UPDATE leases SET expires_s = ? WHERE id = ?"
_SHRINK_LEASE = "UPDATE leases SET members = ? WHERE id = ?"
_DELETE_LEASE = "DELETE FROM leases WHERE id = ?"
_INSERT_SESSION = "INSERT OR REPLACE INTO sessions VALUES (?, ?, ?, ?, ?, ?)"
_EXTEND_SESSION = "UPDATE sessions SET expires_s = ? WHERE id = ?"
_DELETE_SESSION = "DELETE FROM sessions WHERE id = ?"
_REMEMBER_KEY = "INSERT OR REPLACE INTO seen VALUES (?, ?, ?)"
_FORGET_KEY = "DELETE FROM seen WHERE queue = ? AND key = ?"
_INSERT_REPLY = "INSERT OR REPLACE INTO replies VALUES (?, ?, ?)"
_FORGET_REPLIES = "DELETE FROM replies WHERE owner = ? AND request < ?"
_DECLARE = "INSERT OR REPLACE INTO queues VALUES (?, ?)"
_PURGE_MESSAGES = "DELETE FROM messages WHERE queue = ?"
_PURGE_LEASES = "DELETE FROM leases WHERE queue = ?"
_FORGET_CLOCKS = "DELETE FROM clock WHERE boot <> ?"
_SET_CLOCK = "INSERT OR REPLACE INTO clock VALUES (?, ?)"
_SHIFT_TIMES = (
    "UPDATE messages SET due_s = due_s + ? WHERE due_s > 0",
    "UPDATE leases SET expires_s = expires_s + ?",
    "UPDATE sessions SET expires_s = expires_s + ?",
    "UPDATE seen SET until_s = until_s + ?",
)

LATEST = "latest"
"""In the table of clocks, in place of a run of the machine: a Unix time that the file has seen."""

# What time servers do to a clock without a step, and rounding, is below this.
_STEP_S = 1.0


class JournalWriter:
    """Turns entries into statements. Monotonic times become Unix times on the way; when the
    wall clock is set, those in the file are set with it.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._offset_s = clock.time_s() - clock.now_s()
        self._boot_id = ""
        self._noted_s = 0.0

    def keep_time(self, boot_id: str, offset_s: float) -> list[Statement]:
        """Go on with the offset that the file's times have; the statements that note it."""
        self._boot_id, self._offset_s = boot_id, offset_s
        self._noted_s = self._clock.now_s() + offset_s
        return [
            Statement(_FORGET_CLOCKS, [(boot_id,)]),
            Statement(_SET_CLOCK, [(boot_id, offset_s), (LATEST, self._noted_s)]),
        ]

    def _note_time(self) -> list[Statement]:
        """Keep, to the second, until when times were counted: so that after a reboot no delay is
        longer than it was when it began, however far the clock was set back.
        """
        time_s = self._clock.now_s() + self._offset_s
        if time_s - self._noted_s < _STEP_S:
            return []
        self._noted_s = time_s
        return [Statement(_SET_CLOCK, [(LATEST, time_s)])]

    def statements_of(self, entry: Entry) -> list[Statement]:
        """The statements that make the entry durable, in order."""
        offset_s = self._clock.time_s() - self._clock.now_s()
        if abs(offset_s - self._offset_s) <= _STEP_S:
            return self._statements(entry)
        step_s = offset_s - self._offset_s
        shift = [Statement(sql, [(step_s,)]) for sql in _SHIFT_TIMES]
        return [*shift, *self.keep_time(self._boot_id, offset_s), *self._statements(entry)]

    def _statements(self, entry: Entry) -> list[Statement]:
        match entry:
            case SentEntry():
                return self._sent(entry)
            case Leased(queue, batch):
                return [self._lease(queue, batch)]
            case Settled():
                return self._settled(entry)
            case Extended():
                return self._extended(entry)
            case Lapsed(_, lapse):
                return _lapsed(lapse)
            case Locked(queue, lock):
                return [self._lock(queue, lock)]
            case Renewed(_, lock, extension):
                expires_s = lock.expires_s + self._unix_offset_s()
                moved = [(expires_s, batch.id) for batch in extension.moved]
                return [
                    Statement(_EXTEND_SESSION, [(expires_s, lock.id)]),
                    Statement(_EXTEND_LEASE, moved),
                ]
            case Unlocked(_, lock):
                return [Statement(_DELETE_SESSION, [(lock.id,)])]
            case MovedEntry(source, queue, target):
                row = self._message(queue, target, self._unix_offset_s())
                return [
                    Statement(_DELETE_MESSAGES, _ranges([source])),
                    Statement(_INSERT_MESSAGES, [row], _MESSAGE),
                ]
            case Declared(settings):
                return [Statement(_DECLARE, [(settings.name, codec.pack_settings(settings))])]
            case PurgedEntry(queue):
                return [
                    Statement(_PURGE_MESSAGES, [(queue,)]),
                    Statement(_PURGE_LEASES, [(queue,)]),
                ]
            case Forgotten(owner, below):
                return [Statement(_FORGET_REPLIES, [(owner, below)])]
            case _:
                assert_never(entry)

    def _sent(self, entry: SentEntry) -> list[Statement]:
        queue, offset_s = entry.queue, self._unix_offset_s()
        pack = codec.pack_checked
        rows = [
            (
                r.seq,
                queue,
                0,
                r.due_s and r.due_s + offset_s,
                r.sent_at_s + offset_s,
                pack(r.message),
            )
            for r in entry.arrival.records
        ]
        runs = [Statement(_INSERT_MESSAGES, rows, _MESSAGE)]
        delayed = [r for r in entry.arrival.records if r.due_s]
        if entry.arrival.keys or delayed:
            runs += self._note_time()
        if entry.arrival.keys:
            until_s = self._clock.now_s() + offset_s + entry.window_s
            runs.append(Statement(_FORGET_KEY, [(queue, key) for key in entry.arrival.forgotten]))
            keys = [(queue, key, until_s) for key in entry.arrival.keys]
            runs.append(Statement(_REMEMBER_KEY, keys))
        return runs + _replied(entry.request, b"")

    def _settled(self, entry: Settled) -> list[Statement]:
        detached = entry.detached
        runs = []
        if detached.acked:
            runs.append(Statement(_DELETE_MESSAGES, _ranges(detached.acked)))
        counted = [each for each in detached.returned if each.is_counted]
        if counted:
            now_s = entry.now_s + self._unix_offset_s()
            rows = [
                (
                    each.record.attempt,
                    now_s + each.delay_s if each.delay_s > 0 else 0.0,
                    each.record.seq,
                )
                for each in counted
            ]
            runs.append(Statement(_RETURN_MESSAGE, rows))
            runs += self._note_time()
        # An entry of a lease is void once its message is gone or has that attempt recorded.
        # An abandoned message has neither, so its lease row must lose it.
        has_uncounted = len(counted) < len(detached.returned)
        for batch in dict.fromkeys(detached.batches):
            if not batch.members:
                runs.append(Statement(_DELETE_LEASE, [(batch.id,)]))
            elif has_uncounted:
                runs.append(_shrunk(batch))
        return runs + _replied(entry.request, codec.pack_positions(detached.refused))

    def _extended(self, entry: Extended) -> list[Statement]:
        extension, offset_s = entry.extension, self._unix_offset_s()
        moved = [(batch.expires_s + offset_s, batch.id) for batch in extension.moved]
        runs = [Statement(_EXTEND_LEASE, moved)] if moved else []
        runs += [self._lease(entry.queue, batch) for batch in extension.split]
        return runs + [_shrunk(batch) for batch in extension.shrunk]

    def _lease(self, queue: str, batch: LeaseBatch) -> Statement:
        members = codec.pack_members(batch.id, batch.members.values())
        expires_s = batch.expires_s + self._unix_offset_s()
        row = (batch.id, queue, batch.owner, batch.request, expires_s, members)
        return Statement(_INSERT_LEASE, [row])

    def _lock(self, queue: str, lock: LockedSession) -> Statement:
        expires_s = lock.expires_s + self._unix_offset_s()
        row = (lock.id, queue, lock.owner, lock.request, expires_s, lock.group)
        return Statement(_INSERT_SESSION, [row])

    def _message(self, queue: str, r: Record, offset_s: float) -> tuple[object, ...]:
        sent_s = r.sent_at_s + offset_s
        return (r.seq, queue, r.attempt, 0.0, sent_s, codec.pack_checked(r.message))

    def _unix_offset_s(self) -> float:
        return self._offset_s


def _lapsed(lapse: Lapse) -> list[Statement]:
    records = [*lapse.returned, *lapse.dead]
    runs = [
        Statement(_COUNT_ATTEMPT, [(record.attempt, record.seq) for record in records]),
        Statement(_DELETE_LEASE, [(batch.id,) for batch in lapse.batches]),
    ]
    if lapse.locks:
        runs.append(Statement(_DELETE_SESSION, [(lock.id,) for lock in lapse.locks]))
    return runs


def _shrunk(batch: LeaseBatch) -> Statement:
    return Statement(
        _SHRINK_LEASE, [(codec.pack_members(batch.id, batch.members.values()), batch.id)]
    )


def _replied(request: AnsweredRequest | None, reply: bytes) -> list[Statement]:
    if request is None:
        return []
    return [Statement(_INSERT_REPLY, [(request.owner, request.number, reply)])]


def _ranges(records: Sequence[Record]) -> list[tuple[int, int]]:
    """The numbers as ranges without gaps; a batch that was acked whole is mostly one."""
    ranges: list[tuple[int, int]] = []
    for seq in sorted(record.seq for record in records):
        if ranges and ranges[-1][1] == seq - 1:
            ranges[-1] = (ranges[-1][0], seq)
        else:
            ranges.append((seq, seq))
    return ranges


# The tables of the embedded broker.
#
# `queues` (settings), `messages` (one row each, in sequence order), `leases` (one row a receive,
# its members packed), `sessions` (locks that are held), `seen` (de-duplication ids), `replies`
# (remote requests that must not be carried out twice), `clock` (the run of the machine, and what
# Unix times minus its monotonic ones were, and the latest Unix time seen; added later, and unknown
# to older releases). Times are
# Unix times: they outlive the process. So does the highest number that a message ever had
# (`AUTOINCREMENT`): it is what a delivery is known by (`broker_id`), and the copy of a message that
# is gone must not have it again.

CLOCK_TABLE = """
CREATE TABLE IF NOT EXISTS clock (boot TEXT PRIMARY KEY, offset_s REAL NOT NULL) WITHOUT ROWID
"""
SCHEMA = Schema(
    application_id=0x50554D50,  # "PUMP"
    version=3,
    tables=f"""{CLOCK_TABLE};
CREATE TABLE queues (name TEXT PRIMARY KEY, settings BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE messages (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, queue TEXT NOT NULL, attempt INTEGER NOT NULL,
    due_s REAL NOT NULL, sent_s REAL NOT NULL, packed BLOB NOT NULL
);
CREATE TABLE leases (
    id TEXT PRIMARY KEY, queue TEXT NOT NULL, owner TEXT NOT NULL, request INTEGER,
    expires_s REAL NOT NULL, members BLOB NOT NULL
) WITHOUT ROWID;
CREATE TABLE sessions (
    id TEXT PRIMARY KEY, queue TEXT NOT NULL, owner TEXT NOT NULL, request INTEGER,
    expires_s REAL NOT NULL, session TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE seen (
    queue TEXT NOT NULL, key TEXT NOT NULL, until_s REAL NOT NULL, PRIMARY KEY (queue, key)
) WITHOUT ROWID;
CREATE TABLE replies (
    owner TEXT NOT NULL, request INTEGER NOT NULL, reply BLOB NOT NULL,
    PRIMARY KEY (owner, request)
) WITHOUT ROWID;
""",
)


# Recovery: from the file back to an engine's memory.
#
# Everything is restored as it was, leases included; then the leases of owners that are dead end
# (T4), and those whose time is over end by the clock, each counted as an attempt. A message
# therefore reaches its `max_receive_count` also when every delivery kills the process.


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
