"""Recovery: from the file back to an engine's memory (T4).

In flight is what clients may still have of a server that crashed, until their leases would have
ended. Counts, delays and de-duplication go on where they were, and move tasks are taken up again.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from sqlite3 import Connection
from sys import intern

import attrs

from ..model import QueueId
from .codec import Stored, check_text, unpack_settings, unseal
from .deduplication import WINDOW_S
from .engine import SqsEngine
from .leases import NotedLease
from .queue import Queue
from .record import FileIdentity, MoveStatus, MoveTask, SqsRecord, TimedHold
from .state import hide
from .statements import CORRUPTED, KEY, RESERVED

# With fewer, the collector is no burden; what it is told to overlook is never freed in cycles.
_WORTH_FREEZING = 100_000

_MESSAGES = (
    "SELECT seq, queue, origin, received, sent_s, first_s, due_s, message_group, source, extra, "
    "CAST(body AS BLOB) FROM messages ORDER BY seq"
)


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
        count = 0
        # A flipped bit may leave a text that is none; it must not keep the others from being read.
        connection.text_factory = _text
        for row in connection.execute(_MESSAGES):
            seq, number, origin, received, sent_s, first_s, due_s, group, source, extra, body = row
            stored = Stored(seq, number, origin, sent_s, group, source, extra, body)
            extra, is_sound = unseal(stored)
            text = _text(body)
            record = SqsRecord(seq, origin or seq, text, extra, group, source, sent_s)
            if not is_sound or not _is_text(text):
                self._recovered.corrupted.append(Corrupted(number, record))
                continue
            records = by_queue.get(number)
            if records is None:
                self._recovered.orphans.add(number)
                continue
            if group is not None:
                record.group = intern(group)
            if source is not None:
                record.source = intern(source)
            if received:
                record.receive_count, record.first_at_s = received, first_s
            if due_s and due_s + self._offset_s > self._now_s:
                self._delay(number, record, self._soon(due_s, due_s - sent_s))
            elif seq in self._leases:
                self._lease(number, record, self._leases[seq])
            records.append(record)
            count += 1
        connection.text_factory = str
        for number, records in by_queue.items():
            delays = self._delays.get(number, {})
            self._queues[number].state.add(records, delays.values())
        for (number, due_s, taken_s, boot), held in self._in_flight.items():
            hold = TimedHold(due_s, [], taken_s, holder=boot)
            self._queues[number].state.resume(held, hold)
        self._restore_keys(connection)
        return count

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
