"""Effort: what an operation costs does not grow with what it has nothing to do with."""

from __future__ import annotations

import asyncio
import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from gateways.sqs_server.engine import SqsEngine, SqsStore, recovery
from gateways.sqs_server.engine.entries import (
    KEY,
    SCHEMA,
    Entry,
    QueuePurged,
    QueueRemoved,
    StoredContent,
    statements_of,
)
from gateways.sqs_server.engine.record import SqsRecord, pack_settings
from gateways.sqs_server.model import SqsQueueSettings
from pump.testing.virtual_clock import VirtualClock

from .shop import Shop, address

INSERT = "INSERT INTO messages VALUES (?, ?, NULL, 0, ?, 0.0, ?, NULL, NULL, NULL, 'x')"


def make_file() -> sqlite3.Connection:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    connection.executescript(SCHEMA.tables)
    connection.execute("INSERT INTO meta VALUES (?, 1)", (KEY,))
    return connection


def steps_to_write(connection: sqlite3.Connection, entry: Entry) -> int:
    """How many thousands of instructions of SQLite's machine an entry takes."""
    thousands: list[None] = []
    connection.set_progress_handler(lambda: thousands.append(None), 1_000)
    for run in statements_of(entry):
        run.write(connection)
    connection.set_progress_handler(None, 0)
    return len(thousands)


def purged(content: StoredContent) -> Entry:
    return QueuePurged(content)


def removed(content: StoredContent) -> Entry:
    return QueueRemoved(content, address("orders"))


@pytest.mark.parametrize("make_entry", [purged, removed])
@pytest.mark.parametrize("own", [[], [5], [7, 8, 9], [3, 19_999]])
def test_when_a_small_queue_is_emptied_then_a_large_one_is_not_searched(
    make_entry: Callable[[StoredContent], Entry], own: list[int]
) -> None:
    with closing(make_file()) as connection:
        # Number 20,000 is written, but not known yet.
        mine = [*own, 20_000]
        rows = [(seq, 2 if seq in mine else 1, 0.0, 0.0) for seq in range(1, 20_001)]
        connection.executemany(INSERT, rows)
        records = [SqsRecord(seq, seq, "x", None, None, None, 0.0) for seq in own]

        steps = steps_to_write(connection, make_entry(StoredContent(2, records, 19_999)))

        assert steps <= 1
        left = connection.execute("SELECT queue, COUNT(*) FROM messages GROUP BY queue")
        assert left.fetchall() == [(1, 20_000 - len(mine))]


def test_when_a_large_queue_is_emptied_then_all_of_it_goes_and_nothing_else() -> None:
    with closing(make_file()) as connection:
        rows = [(seq, 1 + seq % 2, 0.0, 0.0) for seq in range(1, 20_001)]
        connection.executemany(INSERT, rows)
        records = [SqsRecord(seq, seq, "x", None, None, None, 0.0) for seq in range(1, 19_999, 2)]

        steps_to_write(connection, QueuePurged(StoredContent(2, records, 19_998)))

        left = connection.execute("SELECT queue, COUNT(*) FROM messages GROUP BY queue")
        assert left.fetchall() == [(1, 10_000)]


async def test_when_purged_right_behind_a_send_then_that_is_purged_too(
    tmp_path: Path, clock: VirtualClock
) -> None:
    shop = await Shop.open(clock, SqsStore(tmp_path))
    await shop.make("other")
    await shop.send(*"abc")
    await shop.make("orders")
    await shop.send("d")

    sending = asyncio.create_task(shop.send("e"))
    purging = asyncio.create_task(shop.engine.purge(shop.queue))
    await asyncio.wait([sending, purging])
    await shop.engine.aclose()

    assert purging.result() == 2
    again = await Shop.open(clock, SqsStore(tmp_path))
    again.use("orders")
    assert again.counts() == (0, 0, 0)
    again.use("other")
    assert again.counts() == (3, 0, 0)
    await again.engine.aclose()


def lines_run(module: str, work: Callable[[], Any]) -> int:
    """How many lines of a module are executed, each time counted."""
    count = 0

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal count
        if frame.f_code.co_filename != module:
            return None
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


def test_when_many_queues_have_delayed_messages_then_recovery_looks_at_each_once(
    clock: VirtualClock,
) -> None:
    """T4."""
    with closing(make_file()) as connection:
        due_s = clock.time_s() + 100
        for number in range(200):
            packed = pack_settings(SqsQueueSettings(address=address(f"queue{number}")))
            connection.execute("INSERT INTO queues VALUES (?, ?)", (number, packed))
        rows = [(seq, seq % 200, clock.time_s(), due_s + seq / 100) for seq in range(1, 1_001)]
        connection.executemany(INSERT, rows)
        engine = SqsEngine(clock)

        lines = lines_run(str(recovery.__file__), lambda: recovery.recover(engine, connection))

        assert lines < 40_000, "some per message, and not one per message and queue"
        assert {len(queue.state.timers) for queue in engine.queues.values()} == {5}
