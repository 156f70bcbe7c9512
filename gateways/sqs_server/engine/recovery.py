"""Recovery: from the file back to an engine's memory (T4).

Nothing is in flight any more: receivers were the dead server's. Counts, delays and
de-duplication go on where they were, and move tasks are taken up again.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from sqlite3 import Connection
from sys import intern

import attrs

from ..model import QueueAddress
from .codec import unpack_settings
from .deduplication import WINDOW_S
from .engine import Engine
from .identity import Identity
from .moves import MoveStatus, MoveTask
from .queue import Queue
from .record import Hold, Record
from .schema import KEY, RESERVED
from .state import hide

# With fewer, the collector is no burden; what it is told to overlook is never freed in cycles.
_WORTH_FREEZING = 100_000

_MESSAGES = (
    "SELECT seq, queue, origin, received, sent_s, first_s, due_s, message_group, source, extra, "
    "body FROM messages ORDER BY seq"
)


@attrs.define
class Recovered:
    """What the file said beyond the queues themselves."""

    tasks: list[MoveTask] = attrs.field(factory=list)
    """Every move task, oldest first."""
    orphans: set[int] = attrs.field(factory=set)
    """Numbers of deleted queues that late messages were written for."""


def recover(engine: Engine, connection: Connection) -> Recovered:
    """Fill an empty engine from the file. Blocks: nobody else knows the engine yet."""
    meta = dict(connection.execute("SELECT name, value FROM meta"))
    engine.identity = Identity(meta[KEY])
    recovered = Recovered()
    with _without_collector():
        queues: dict[int, Queue] = {}
        for number, packed in connection.execute("SELECT number, settings FROM queues"):
            queues[number] = engine.admit(number, unpack_settings(packed))
        count = _Restorer(engine, queues, recovered).restore(connection)
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


class _Restorer:
    """Rows to records, Unix times to the clock's."""

    def __init__(self, engine: Engine, queues: dict[int, Queue], recovered: Recovered) -> None:
        self._queues = queues
        self._recovered = recovered
        self._now_s = engine.clock.now_s()
        self._offset_s = self._now_s - engine.clock.time_s()
        self._delays: dict[int, dict[float, Hold]] = {}
        """By queue and end."""

    def restore(self, connection: Connection) -> int:
        by_queue: dict[int, list[Record]] = {number: [] for number in self._queues}
        count = 0
        for row in connection.execute(_MESSAGES):
            seq, number, origin, received, sent_s, first_s, due_s, group, source, extra, body = row
            records = by_queue.get(number)
            if records is None:
                self._recovered.orphans.add(number)
                continue
            record = Record(seq, origin or seq, body, extra, group, source, sent_s)
            if group is not None:
                record.group = intern(group)
            if source is not None:
                record.source = intern(source)
            if received:
                record.receive_count, record.first_at_s = received, first_s
            if due_s and due_s + self._offset_s > self._now_s:
                self._delay(number, record, self._soon(due_s, due_s - sent_s))
            records.append(record)
            count += 1
        for number, records in by_queue.items():
            delays = self._delays.get(number, {})
            self._queues[number].state.add(records, delays.values())
        self._restore_keys(connection)
        return count

    def _delay(self, number: int, record: Record, due_s: float) -> None:
        delays = self._delays.setdefault(number, {})
        hold = delays.get(due_s)
        if hold is None:
            hold = delays[due_s] = Hold(due_s, [])
        hide(record, hold)

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


def _tasks(connection: Connection) -> Iterator[MoveTask]:
    for row in connection.execute(
        "SELECT number, handle, source, target, rate, to_move, started_ms, status, moved, reason "
        "FROM moves ORDER BY number"
    ):
        number, handle, source, target, rate, to_move, started_ms, status, moved, reason = row
        address = QueueAddress.from_arn(source)
        if address is not None:
            yield MoveTask(
                number=number,
                handle=handle,
                source=address,
                target=None if target is None else QueueAddress.from_arn(target),
                rate=rate,
                to_move=to_move,
                started_at_ms=started_ms,
                status=MoveStatus(status),
                moved=moved,
                failure_reason=reason,
            )
