"""Entries: what must not be forgotten, as SQL, and the callbacks for when it is written.

The engine changes its memory in the callback of a write, so memory never runs ahead of what is
durable: a send becomes visible, a delete final, a moved message received, only when written.
"""

from __future__ import annotations

from asyncio import Future
from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Protocol, assert_never

import msgspec

from ..._sqlite.database import Schema, Statement
from ..._sqlite.group_commit import Done
from ..model import NewMessage, QueueId, SqsQueueSettings
from .record import MoveTask, NewMessages, SqsRecord, TimedHold, pack_settings, seal

if TYPE_CHECKING:
    from .engine import SqsEngine
    from .record import MoveStatus, MoveTask


class Reserved(msgspec.Struct, frozen=True):
    """Numbers below this one may be in use."""

    below: int


class Created(msgspec.Struct, frozen=True):
    """A queue was made."""

    number: int
    settings: SqsQueueSettings


class Configured(msgspec.Struct, frozen=True):
    """A queue got other settings."""

    number: int
    settings: SqsQueueSettings
    delays: Sequence[tuple[SqsRecord, float]] = ()
    """Messages that are delayed otherwise by it, each until this Unix time, zero for no longer."""


class StoredContent(msgspec.Struct, frozen=True):
    """Where all that is, or is being, written of a queue is found, without searching the
    whole file.
    """

    number: int
    records: Collection[SqsRecord]
    """Its messages that are written, oldest first."""
    settled: int
    """What is being written has higher numbers, and there is little else that has."""


class QueueRemoved(msgspec.Struct, frozen=True):
    """A queue was deleted, with all it had."""

    content: StoredContent
    address: QueueId


class MessagesSent(msgspec.Struct, frozen=True):
    """Messages were accepted."""

    number: int
    arrival: NewMessages
    unix_offset_s: float
    """What makes a Unix time of the clock's."""


class Counted(msgspec.Struct, frozen=True):
    """Messages were received, or a receive was undone."""

    records: Sequence[SqsRecord]


class Deleted(msgspec.Struct, frozen=True):
    """Messages were deleted, or their retention has ended."""

    records: Sequence[SqsRecord]


class MessagesMoved(msgspec.Struct, frozen=True):
    """Messages become others, in another queue."""

    pairs: Sequence[tuple[SqsRecord, int, SqsRecord]]
    """Each as it was, the number of the queue it goes to, and what it is there."""
    task: MoveTask | None = None
    """The task that moves them, with its progress as it will be."""
    moved: int = 0
    has_new_bodies: bool = False
    """Whether what is stored of the bodies is not what it should be."""


class QueuePurged(msgspec.Struct, frozen=True):
    """Every message of a queue was removed."""

    content: StoredContent


class Tasked(msgspec.Struct, frozen=True):
    """A move task began, and others, long over, are forgotten."""

    task: MoveTask
    forgotten: Sequence[MoveTask] = ()


class TaskEndedEntry(msgspec.Struct, frozen=True):
    """A move task ended."""

    task: MoveTask
    status: MoveStatus
    reason: str | None = None


Entry = (
    Reserved
    | Created
    | Configured
    | QueueRemoved
    | MessagesSent
    | Counted
    | Deleted
    | MessagesMoved
    | QueuePurged
    | Tasked
    | TaskEndedEntry
)


class Store(Protocol):
    """Writes entries in the order given, each wholly or not at all.

    When one fails, all that were waiting behind it fail too: they were decided in the belief
    that it would succeed (a duplicate is only refused because the first one is being stored).
    """

    async def open(self, engine: SqsEngine) -> None:
        """Get hold of the storage and fill the engine with what it says."""

    def write(self, entry: Entry, done: Done) -> Future[None] | None:
        """Take an entry; `done` is called when it is written or has failed, in order.

        Returns None when `done` was called already, else a future that ends after `done`,
        with the same error. Cancelling the future stops nothing.
        """

    def has_room(self, messages: Sequence[NewMessage]) -> bool:
        """Whether messages may be sent, as far as is known: the last of the room is for receives
        and deletions, so that consumers can make more.
        """

    async def require_room(self, messages: Sequence[NewMessage]) -> None:
        """Look again, and raise `StorageFull` when they may not."""

    def note_receive(self, hold: TimedHold, records: Sequence[SqsRecord], offset_s: float) -> None:
        """Keep for after a crash that a client has messages in flight; never raises, never waits.

        `offset_s` makes a Unix time of the clock's.
        """

    def note_changes(self, records: Sequence[SqsRecord], offset_s: float) -> None:
        """The same after the visibility of messages was changed."""

    async def aclose(self, *, frees: bool = True) -> None:
        """Write what was given, forget what is in flight if it `frees` that, and let go
        of the storage.
        """


class NullStore:
    """Forgets everything at once: for tests, and for servers that need to keep nothing."""

    async def open(self, engine: SqsEngine) -> None:
        """Nothing to recover."""

    def write(self, entry: Entry, done: Done) -> None:
        done(None)

    def has_room(self, messages: Sequence[NewMessage]) -> bool:
        return True

    async def require_room(self, messages: Sequence[NewMessage]) -> None:
        """There always is."""

    def note_receive(self, hold: TimedHold, records: Sequence[SqsRecord], offset_s: float) -> None:
        """No crash leaves anything in flight."""

    def note_changes(self, records: Sequence[SqsRecord], offset_s: float) -> None:
        """The same."""

    async def aclose(self, *, frees: bool = True) -> None:
        """Nothing to let go of."""


# An entry as SQL statements, made at once, for records change afterwards.

_INSERT_MESSAGES = "INSERT INTO messages VALUES"
_MESSAGE = "(?, ?, NULL, 0, ?, 0.0, ?, ?, NULL, ?, ?)"
_DELETE_MESSAGES = "DELETE FROM messages WHERE seq BETWEEN ? AND ?"
_COUNT_MESSAGE = "UPDATE messages SET received = ?, first_s = ? WHERE seq = ?"
_DELAY_MESSAGE = "UPDATE messages SET due_s = ? WHERE seq = ?"
_MOVE_MESSAGE = (
    "UPDATE messages SET seq = ?, queue = ?, origin = ?, received = 0, sent_s = ?, first_s = 0.0, "
    "due_s = 0.0, source = ?, extra = ? WHERE seq = ?"
)
_REWRITE_BODY = "UPDATE messages SET body = ? WHERE seq = ?"
_REMEMBER_KEY = "INSERT OR REPLACE INTO seen VALUES"
_KEY = "(?, ?, ?, ?)"
_FORGET_KEY = "DELETE FROM seen WHERE queue = ? AND key = ?"
_CREATE = "INSERT INTO queues VALUES (?, ?)"
# Not inserted: it may have been deleted in the meantime.
_CONFIGURE = "UPDATE queues SET settings = ? WHERE number = ?"
_REMOVE = "DELETE FROM queues WHERE number = ?"
_PURGE_MESSAGES = "DELETE FROM messages WHERE seq > ? AND queue = ?"
_PURGE_KEYS = "DELETE FROM seen WHERE queue = ?"
_RESERVE = "INSERT OR REPLACE INTO meta VALUES (?, ?)"
_INSERT_TASK = "INSERT INTO moves VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_FORGET_TASK = "DELETE FROM moves WHERE number = ?"
_FORGET_TASKS = "DELETE FROM moves WHERE source = ?"
_PROGRESS = "UPDATE moves SET moved = ? WHERE number = ?"
_END_TASK = "UPDATE moves SET status = ?, reason = ? WHERE number = ?"

FORGET_ORPHANS = [
    f"DELETE FROM {table} WHERE queue NOT IN (SELECT number FROM queues)"
    for table in ("messages", "seen")
]
"""Forget what came too late for queues that were deleted."""

# A search looks at every later message of every queue, but in one step.
_FEW = 5_000


def statements_of(entry: Entry) -> list[Statement]:
    """The statements that make the entry durable, in order."""
    match entry:
        case MessagesSent():
            return _sent(entry)
        case Deleted(records):
            # Only messages whose insertion is written are deleted, so neither waits for the other.
            return [Statement(_DELETE_MESSAGES, ranges(records), is_free=True)]
        case Counted(records):
            rows = [(r.receive_count, r.first_at_s, r.seq) for r in records]
            return [Statement(_COUNT_MESSAGE, rows)]
        case MessagesMoved():
            return _moved(entry)
        case Reserved(below):
            return [Statement(_RESERVE, [(RESERVED, below)])]
        case Created(number, settings):
            return [Statement(_CREATE, [(number, pack_settings(settings))])]
        case Configured(number, settings, delays):
            runs = [Statement(_CONFIGURE, [(pack_settings(settings), number)])]
            if delays:
                runs.append(Statement(_DELAY_MESSAGE, [(due_s, r.seq) for r, due_s in delays]))
            return runs
        case QueueRemoved(content, address):
            gone = [
                Statement(_REMOVE, [(content.number,)]),
                Statement(_FORGET_TASKS, [(address.arn,)]),
            ]
            return gone + _purged(content)
        case QueuePurged(content):
            return _purged(content)
        case Tasked(task, forgotten):
            forget = Statement(_FORGET_TASK, [(each.number,) for each in forgotten])
            return [forget, Statement(_INSERT_TASK, [_task(task)])]
        case TaskEndedEntry(task, status, reason):
            return [Statement(_END_TASK, [(status.value, reason, task.number)])]
        case _:
            assert_never(entry)


def _sent(entry: MessagesSent) -> list[Statement]:
    number, offset_s, arrival = entry.number, entry.unix_offset_s, entry.arrival
    rows = [
        (
            r.seq,
            number,
            r.sent_at_s,
            0.0 if r.hold is None else r.hold.due_s + offset_s,
            r.group,
            seal(r, number),
            r.body,
        )
        for r in arrival.records
    ]
    runs = [Statement(_INSERT_MESSAGES, rows, _MESSAGE, is_free=True)] if rows else []
    if arrival.forgotten:
        runs.append(Statement(_FORGET_KEY, [(number, key) for key in arrival.forgotten]))
    if arrival.keys:
        until_s = arrival.keys_until_s + offset_s
        keys = [(number, key, seq, until_s) for key, seq in arrival.keys]
        runs.append(Statement(_REMEMBER_KEY, keys, _KEY))
    return runs


def _moved(entry: MessagesMoved) -> list[Statement]:
    rows = [
        (
            moved.seq,
            number,
            None if moved.origin == moved.seq else moved.origin,
            moved.sent_at_s,
            moved.source,
            seal(moved, number),
            record.seq,
        )
        for record, number, moved in entry.pairs
    ]
    runs = [Statement(_MOVE_MESSAGE, rows)]
    if entry.has_new_bodies:
        runs.append(
            Statement(_REWRITE_BODY, [(moved.body, moved.seq) for _, _, moved in entry.pairs])
        )
    if entry.task is not None:
        runs.append(Statement(_PROGRESS, [(entry.moved, entry.task.number)]))
    return runs


def _purged(content: StoredContent) -> list[Statement]:
    """Delete few messages one by one, many by a search that begins with the oldest."""
    number, records, after = content.number, content.records, content.settled
    runs = []
    if len(records) > _FEW:
        after = next(iter(records)).seq - 1
    elif records:
        runs.append(Statement(_DELETE_MESSAGES, ranges(list(records))))
    runs.append(Statement(_PURGE_MESSAGES, [(after, number)]))
    return [*runs, Statement(_PURGE_KEYS, [(number,)])]


def _task(task: MoveTask) -> tuple[object, ...]:
    return (
        task.number,
        task.handle,
        task.source.arn,
        None if task.target is None else task.target.arn,
        task.rate,
        task.to_move,
        task.started_at_ms,
        task.status.value,
        task.moved,
        task.failure_reason,
    )


def ranges(records: Sequence[SqsRecord]) -> list[tuple[int, int]]:
    """The numbers as ranges without gaps; a batch that is deleted whole is mostly one."""
    if len(records) == 1:
        return [(records[0].seq, records[0].seq)]
    found: list[tuple[int, int]] = []
    for seq in _sorted_numbers(records):
        if found and found[-1][1] >= seq - 1:
            found[-1] = (found[-1][0], seq)
        else:
            found.append((seq, seq))
    return found


def _sorted_numbers(records: Iterable[SqsRecord]) -> list[int]:
    return sorted(record.seq for record in records)


# The tables of the server's file.
#
# `meta` (the file's key, and below which number all may be in use), `queues` (settings),
# `messages` (one row each, in sequence order), `seen` (de-duplication keys), `moves` (move
# tasks), and once something was found in it that is not what was written, `corrupted` (messages
# that are kept and never served). Times are Unix times: they outlive the process. Who has a message
# in flight is written in files beside it, see `leases.py`.

SCHEMA = Schema(
    application_id=0x50555351,  # "PUSQ"
    version=1,
    tables="""
CREATE TABLE meta (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE queues (number INTEGER PRIMARY KEY, settings BLOB NOT NULL);
CREATE TABLE messages (
    seq INTEGER PRIMARY KEY, queue INTEGER NOT NULL, origin INTEGER, received INTEGER NOT NULL,
    sent_s REAL NOT NULL, first_s REAL NOT NULL, due_s REAL NOT NULL,
    message_group TEXT, source TEXT, extra BLOB, body TEXT NOT NULL
);
CREATE TABLE seen (
    queue INTEGER NOT NULL, key TEXT NOT NULL, seq INTEGER NOT NULL, until_s REAL NOT NULL,
    PRIMARY KEY (queue, key)
) WITHOUT ROWID;
CREATE TABLE moves (
    number INTEGER PRIMARY KEY, handle TEXT NOT NULL, source TEXT NOT NULL, target TEXT,
    rate INTEGER, to_move INTEGER NOT NULL, started_ms INTEGER NOT NULL, status TEXT NOT NULL,
    moved INTEGER NOT NULL, reason TEXT
);
""",
)

CORRUPTED = """
CREATE TABLE IF NOT EXISTS corrupted (
    seq INTEGER PRIMARY KEY, message_id TEXT NOT NULL, queue TEXT, found_s REAL NOT NULL,
    sent_s REAL, message_group TEXT, extra BLOB, body BLOB
)
"""
"""Made when it is needed; older releases do not look at it."""

KEY = "key"
RESERVED = "reserved"
