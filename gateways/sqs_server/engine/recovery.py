"""Recovery: from the file, and the leases noted beside it, back to an engine's memory (T4).

In flight is what clients may still have of a server that crashed, until their leases would have
ended. Counts, delays and de-duplication go on where they were, and move tasks are taken up again.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain, repeat
from pathlib import Path
from sqlite3 import Connection
from struct import Struct, error as struct_error, pack
from sys import intern
from typing import Any
from zlib import crc32

import attrs

from pump.observability import vocabulary
from pump.observability.log import get_logger

from ..model import QueueId
from .deduplication import WINDOW_S
from .engine import SqsEngine
from .entries import CORRUPTED, KEY, RESERVED
from .queue import Queue
from .record import (
    IN_FLIGHT,
    LIMBO,
    FileIdentity,
    MoveStatus,
    MoveTask,
    SqsRecord,
    TimedHold,
    check_text,
    sealed_names,
    sealed_row,
    unpack_settings,
    unseal,
)
from .state import hide

# Leases: which messages are in flight, kept for after a crash of the server (T4, T14).
#
# A consumer outlives the server that is killed under it, and so must its lease. The leases are
# appended to a file beside the database by plain writes, without waiting for the disk: what was
# written survives the process, and a receive costs a few microseconds more. A crash of the machine
# may forget the last seconds of them, and then the consumers on it are gone, too.
#
# Two files are written in turn. When one is long, the leases that still run are written to the
# other, which replaces it with its header, so that there is always one whole account.
#
#     file    magic · version · key of the database · turn
#     frames  length, CRC-32 · end, time of the receive (Unix) · process · (number, receive count) …
#
# Of several frames about one message the last one counts.

_HEADER = Struct("<4sIQQ")
_MAGIC = b"PULS"
_VERSION = 1
_FRAME = Struct("<II")
_LEASE = Struct("<ddI")
_MESSAGE = Struct("<QI")
# Of the file that is written: about ten seconds of the greatest load.
_MAX_BYTES = 4 * 1024 * 1024
# On a small disk both together are far below what is kept free of sends.
_FILES_OF_A_DISK = 64

_log = get_logger("gateways.sqs_server")


@attrs.frozen
class NotedLease:
    """One message in flight, as it was noted last. Times are Unix times."""

    due_s: float
    taken_s: float
    boot: str
    """The process whose receipt it has."""
    receive_count: int


class LeaseFile:
    """The account of leases. Writes never raise: without room a lease is kept in memory only."""

    def __init__(
        self, folder: Path, *, key: int, boot: str, live: Callable[[], Iterable[TimedHold]]
    ) -> None:
        self._paths = lease_paths(folder)
        self._key = key
        self._boot = boot
        self._live = live
        self._turn = 0
        self._files: list[int] = []
        self._position = 0
        self._turn_bytes = self._max_bytes = _MAX_BYTES
        self._is_failing = False

    def open(self, turn: int, offset_s: float) -> None:
        """Go on after the account of that turn, with what still runs of it. Blocks."""
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        self._files = [os.open(path, flags, 0o600) for path in self._paths]
        disk = os.statvfs(self._paths[0].parent)
        self._turn_bytes = min(_MAX_BYTES, disk.f_blocks * disk.f_frsize // _FILES_OF_A_DISK)
        self._turn = turn
        self._begin_turn(offset_s)

    def note(self, hold: TimedHold, records: Sequence[SqsRecord], offset_s: float) -> None:
        """Messages are in flight until the end of a hold of theirs."""
        self._append(_frame(hold, records, offset_s, self._boot), offset_s)

    def note_changes(self, records: Sequence[SqsRecord], offset_s: float) -> None:
        """Messages are hidden for other times than before, or not at all."""
        by_hold: dict[TimedHold | None, list[SqsRecord]] = {}
        for record in records:
            by_hold.setdefault(record.hold, []).append(record)
        frames = [
            _frame(_SHOWN if hold is None else hold, held, offset_s, self._boot)
            for hold, held in by_hold.items()
        ]
        self._append(b"".join(frames), offset_s)

    def close(self, *, keeps: bool) -> None:
        """Let go of the files, without a lease in them unless it `keeps` those. Blocks."""
        for file in self._files:
            if not keeps:
                os.ftruncate(file, 0)
            os.close(file)
        self._files = []

    def _append(self, frames: bytes, offset_s: float) -> None:
        if not self._files or not self._write(frames, self._position):
            return
        self._position += len(frames)
        if self._position > self._max_bytes:
            self._begin_turn(offset_s)

    def _begin_turn(self, offset_s: float) -> None:
        """Write what still runs to the other file, and go on there."""
        frames = b"".join(_frames_of(self._live(), offset_s, self._boot))
        other = self._files[::-1]
        if not self._write(frames, _HEADER.size, file=other[0], is_first=True):
            self._max_bytes = self._position + self._turn_bytes
            return
        # Last, so that a file with a header is complete.
        header = _HEADER.pack(_MAGIC, _VERSION, self._key, self._turn + 1)
        if self._write(header, 0, file=other[0]):
            self._files, self._turn = other, self._turn + 1
            self._position = _HEADER.size + len(frames)
            self._max_bytes = self._position + self._turn_bytes

    def _write(
        self, data: bytes, position: int, *, file: int | None = None, is_first: bool = False
    ) -> bool:
        target = self._files[0] if file is None else file
        try:
            if is_first:
                os.ftruncate(target, 0)
            is_whole = os.pwrite(target, data, position) == len(data)
        except OSError as error:
            self._tell(error)
            return False
        self._is_failing = self._is_failing and not is_whole
        return is_whole

    def _tell(self, error: OSError) -> None:
        if not self._is_failing:
            self._is_failing = True
            _log.warning(vocabulary.LEASE_UNSTORED, path=str(self._paths[0]), error=str(error))


_SHOWN = TimedHold(0.0, [])


def lease_paths(folder: Path) -> tuple[Path, Path]:
    """The two files, in no order: which one is newer is written in them."""
    return folder / "sqs.leases", folder / "sqs.leases2"


def read_leases(folder: Path, key: int) -> tuple[int, dict[int, NotedLease]]:
    """The turn, and by message the lease that was noted last, also those that are over.

    Files that are not there, not of this database or cut short say what they can. Blocks.
    """
    accounts = sorted(_accounts(folder, key), key=lambda account: account[0])
    leases: dict[int, NotedLease] = {}
    for _, frames in accounts:
        leases.update(_read_frames(frames))
    return (accounts[-1][0] if accounts else 0), leases


def _accounts(folder: Path, key: int) -> Iterator[tuple[int, bytes]]:
    for path in lease_paths(folder):
        try:
            data = path.read_bytes()
            magic, version, owner, turn = _HEADER.unpack_from(data)
        except (OSError, struct_error):
            continue
        if (magic, version, owner) == (_MAGIC, _VERSION, key):
            yield turn, data[_HEADER.size :]


def _read_frames(data: bytes) -> Iterator[tuple[int, NotedLease]]:
    position = 0
    while position + _FRAME.size <= len(data):
        length, checksum = _FRAME.unpack_from(data, position)
        payload = data[position + _FRAME.size : position + _FRAME.size + length]
        # Also where the file ends in zeros, as a crash of the machine may leave it.
        if length < _LEASE.size or len(payload) < length or crc32(payload) != checksum:
            return
        due_s, taken_s, boot = _LEASE.unpack_from(payload)
        for seq, receive_count in _MESSAGE.iter_unpack(payload[_LEASE.size :]):
            yield seq, NotedLease(due_s, taken_s, f"{boot:08x}", receive_count)
        position += _FRAME.size + length


def _frame(hold: TimedHold, records: Sequence[SqsRecord], offset_s: float, boot: str) -> bytes:
    is_shown = hold is _SHOWN
    payload = pack(
        "<ddI" + "QI" * len(records),
        0.0 if is_shown else hold.due_s + offset_s,
        0.0 if is_shown else hold.taken_s + offset_s,
        int(hold.holder or boot, 16),
        *chain.from_iterable([(r.seq, r.receive_count) for r in records]),
    )
    return _FRAME.pack(len(payload), crc32(payload)) + payload


def _frames_of(holds: Iterable[TimedHold], offset_s: float, boot: str) -> Iterator[bytes]:
    for hold in holds:
        # A delete that is being written may fail, so what is in limbo may stay in flight.
        held = [r for r in hold.records if r.hold is hold and r.phase in (IN_FLIGHT, LIMBO)]
        if held and hold.holder is not None:
            yield _frame(hold, held, offset_s, boot)


# With fewer, the collector is no burden; what it is told to overlook is never freed in cycles.
_WORTH_FREEZING = 100_000

_MESSAGES = "SELECT seq, queue, sent_s, extra, CAST(body AS BLOB) FROM messages ORDER BY seq"
# Of most messages these columns say nothing, and reading them would take as long as all others.
_REST = (
    "SELECT seq, origin, received, first_s, due_s, message_group, source FROM messages "
    "WHERE origin IS NOT NULL OR received <> 0 OR due_s <> 0.0 OR message_group IS NOT NULL "
    "OR source IS NOT NULL ORDER BY seq"
)
_NO_REST = (0,)


@attrs.frozen
class Corrupted:
    """A message that is not what was written any more."""

    number: int
    """Of its queue, as it is written."""
    record: SqsRecord
    """What can be read of it."""


@attrs.define
class RecoveredState:
    """What the file said beyond the queues themselves."""

    tasks: list[MoveTask] = attrs.field(factory=list)
    """Every move task, oldest first."""
    orphans: set[int] = attrs.field(factory=set)
    """Numbers of deleted queues that late messages were written for."""
    corrupted: list[Corrupted] = attrs.field(factory=list)
    """Messages that are not what was written any more; in no queue."""


def recover(
    engine: SqsEngine,
    connection: Connection,
    read_leases: Callable[[int], Mapping[int, NotedLease]] = lambda key: {},
) -> RecoveredState:
    """Fill an empty engine from the file. Blocks: the engine is not shared yet."""
    meta = dict(connection.execute("SELECT name, value FROM meta"))
    engine.identity = FileIdentity(meta[KEY])
    recovered = RecoveredState()
    leases = read_leases(meta[KEY])
    with _without_collector():
        queues: dict[int, Queue] = {}
        for number, packed in connection.execute("SELECT number, settings FROM queues"):
            queues[number] = engine.admit(number, unpack_settings(packed))
        count = _RecordRestorer(engine, queues, recovered, leases).restore(connection)
        if count >= _WORTH_FREEZING:
            gc.freeze()
    recovered.tasks += _tasks(connection)
    engine.numbers.continue_from(meta.get(RESERVED, 1))
    return recovered


@contextmanager
def _without_collector() -> Iterator[None]:
    """A million new objects make it run dozens of times, each longer, and find nothing."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


class _RecordRestorer:
    """Rows to records, Unix times to the clock's."""

    def __init__(
        self,
        engine: SqsEngine,
        queues: dict[int, Queue],
        recovered: RecoveredState,
        leases: Mapping[int, NotedLease],
    ) -> None:
        self._queues = queues
        self._leases = leases
        self._recovered = recovered
        self._now_s = engine.clock.now_s()
        self._offset_s = self._now_s - engine.clock.time_s()
        self._delays: dict[int, dict[float, TimedHold]] = {}
        """By queue and end."""
        self._in_flight: dict[tuple[int, float, float, str], list[SqsRecord]] = {}
        """By queue, end and time of the receive, and process."""

    def restore(self, connection: Connection) -> int:
        by_queue: dict[int, list[SqsRecord]] = {number: [] for number in self._queues}
        # A flipped bit may leave a text that is none; it must not keep the others from being read.
        connection.text_factory = _text
        rests = chain(connection.execute(_REST), repeat(_NO_REST))
        rest, leases = next(rests), self._leases
        for seq, number, sent_s, sealed, body in connection.execute(_MESSAGES):
            record = SqsRecord(
                seq, seq, str(body, "utf-8", "surrogateescape"), None, None, None, sent_s
            )
            due_s = 0.0
            if rest[0] != seq:
                row = sealed_row(seq, number, 0, sent_s)
            else:
                row, due_s = _restore_rest(record, number, rest)
                rest = next(rests)
            record.extra, is_sound = unseal(sealed, row, body)
            if not is_sound or not (record.body.isascii() or _is_text(record.body)):
                self._recovered.corrupted.append(Corrupted(number, record))
                continue
            records = by_queue.get(number)
            if records is None:
                self._recovered.orphans.add(number)
                continue
            if due_s and due_s + self._offset_s > self._now_s:
                self._delay(number, record, self._soon(due_s, due_s - sent_s))
            elif seq in leases:
                self._lease(number, record, leases[seq])
            records.append(record)
        connection.text_factory = str
        for number, records in by_queue.items():
            delays = self._delays.get(number, {})
            self._queues[number].state.add(records, delays.values())
        for (number, due_s, taken_s, boot), held in self._in_flight.items():
            hold = TimedHold(due_s, [], taken_s, holder=boot)
            self._queues[number].state.resume(held, hold)
        self._restore_keys(connection)
        return sum(map(len, by_queue.values()))

    def _delay(self, number: int, record: SqsRecord, due_s: float) -> None:
        delays = self._delays.setdefault(number, {})
        hold = delays.get(due_s)
        if hold is None:
            hold = delays[due_s] = TimedHold(due_s, [])
        hide(record, hold)

    def _lease(self, number: int, record: SqsRecord, lease: NotedLease) -> None:
        # The count in the database may be a moment behind.
        if lease.receive_count > record.receive_count:
            record.receive_count = lease.receive_count
            record.first_at_s = record.first_at_s or lease.taken_s
        due_s = self._soon(lease.due_s, lease.due_s - lease.taken_s)
        if due_s > self._now_s:
            taken_s = min(lease.taken_s + self._offset_s, self._now_s)
            key = (number, due_s, taken_s, lease.boot)
            self._in_flight.setdefault(key, []).append(record)

    def _soon(self, unix_s: float, max_s: float) -> float:
        """A time that is at most `max_s` away, also when the clock was set back meanwhile."""
        return min(unix_s + self._offset_s, self._now_s + max_s)

    def _restore_keys(self, connection: Connection) -> None:
        for number, key, seq, until_s in connection.execute(
            "SELECT queue, key, seq, until_s FROM seen ORDER BY until_s"
        ):
            queue = self._queues.get(number)
            if queue is None:
                self._recovered.orphans.add(number)
            else:
                window = queue.state.deduplication
                window.remember(key, seq)
                window.keep([(key, seq)], self._soon(until_s, WINDOW_S))


def _restore_rest(record: SqsRecord, number: int, rest: Any) -> tuple[bytes, float]:
    """Complete a record; what its checksum says of the row, and until when it is delayed."""
    seq, origin, received, first_s, due_s, group, source = rest
    row = sealed_row(seq, number, origin or 0, record.sent_at_s) + sealed_names(group, source)
    record.origin = origin or seq
    record.group = None if group is None else intern(group)
    record.source = None if source is None else intern(source)
    if received:
        record.receive_count, record.first_at_s = received, first_s
    return row, due_s


def _text(stored: bytes) -> str:
    return stored.decode(errors="surrogateescape")


def _is_text(text: str) -> bool:
    try:
        check_text(text)
    except UnicodeEncodeError:
        return False
    return True


def set_aside(
    connection: Connection, corrupted: Sequence[tuple[Corrupted, str, str | None]], time_s: float
) -> None:
    """Keep messages, each with its id and the name of its queue, where none is served from."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        connection.execute(CORRUPTED)
        for each, message_id, queue in corrupted:
            seq = each.record.seq
            connection.execute(_SET_ASIDE, (message_id, queue, time_s, seq))
            connection.execute("DELETE FROM messages WHERE seq = ?", (seq,))
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


_SET_ASIDE = (
    "INSERT OR REPLACE INTO corrupted SELECT seq, ?, ?, ?, sent_s, message_group, extra, "
    "CAST(body AS BLOB) FROM messages WHERE seq = ?"
)


def _tasks(connection: Connection) -> Iterator[MoveTask]:
    for row in connection.execute(
        "SELECT number, handle, source, target, rate, to_move, started_ms, status, moved, reason "
        "FROM moves ORDER BY number"
    ):
        number, handle, source, target, rate, to_move, started_ms, status, moved, reason = row
        address = QueueId.from_arn(source)
        if address is not None:
            yield MoveTask(
                number=number,
                handle=handle,
                source=address,
                target=None if target is None else QueueId.from_arn(target),
                rate=rate,
                to_move=to_move,
                started_at_ms=started_ms,
                status=MoveStatus(status),
                moved=moved,
                failure_reason=reason,
            )
