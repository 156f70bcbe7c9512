"""Group commit: what shares a commit, in which order it is written, and what fails with it."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from gateways._sqlite.database import Database, Schema, Statement
from gateways._sqlite.group_commit import GroupCommit
from pump.errors import StorageFailed

SCHEMA = Schema(application_id=1, version=1, tables="CREATE TABLE t (n INTEGER PRIMARY KEY, s)")
_INSERT, _DELETE = "INSERT INTO t VALUES", "DELETE FROM t WHERE n = ?"


def insert(*numbers: int, is_free: bool = True) -> Statement:
    return Statement(_INSERT, [(number, "") for number in numbers], "(?, ?)", is_free=is_free)


def delete(number: int) -> Statement:
    return Statement(_DELETE, [(number,)], is_free=True)


def update(text: str) -> Statement:
    return Statement("UPDATE t SET s = ?", [(text,)])


class Slow(Database):
    """Notes each group, and waits for leave before it writes the first."""

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        self.groups: list[list[tuple[str, list[Any]]]] = []
        self.has_begun = Event()
        self.may_write = Event()

    def write(self, group: Any) -> None:
        self.groups.append([(run.sql, list(run.rows)) for run in group])
        self.has_begun.set()
        self.may_write.wait(10)
        super().write(group)


class Bench:
    """A journal on a slow database, and what its writers were told."""

    def __init__(self, database: Slow) -> None:
        self.database = database
        self.journal = GroupCommit(database)
        self.told: list[str] = []

    def write(self, name: str, *runs: Statement) -> None:
        def done(error: Exception | None) -> None:
            self.told.append(name if error is None else f"{name} failed")

        self.journal.append(list(runs), done)

    async def finish(self) -> None:
        self.database.may_write.set()
        await self.journal.flush()

    async def rows(self) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in await self.database.rows("SELECT n, s FROM t ORDER BY n")]


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    database = await Slow.open(tmp_path / "t.db", SCHEMA)
    assert isinstance(database, Slow)
    bench = Bench(database)
    bench.journal.start()
    yield bench
    database.may_write.set()
    await bench.journal.aclose()
    await database.close()


async def test_what_gathers_during_a_commit_shares_the_next(bench: Bench) -> None:
    bench.write("a", insert(1))
    await _begun(bench)
    bench.write("b", insert(2))
    bench.write("c", insert(3))
    await bench.finish()

    assert bench.database.groups[:2] == [
        [(_INSERT, [(1, "")])],
        [(_INSERT, [(2, ""), (3, "")])],
    ]
    assert bench.told == ["a", "b", "c"]
    assert await bench.rows() == [(1, ""), (2, ""), (3, "")]


async def test_free_runs_are_joined_across_each_other_and_no_further(bench: Bench) -> None:
    bench.write("a", insert(1, 2))
    await _begun(bench)
    bench.write("b", insert(3))
    bench.write("c", delete(1))
    bench.write("d", insert(4))
    bench.write("e", update("x"))
    bench.write("f", insert(5), delete(2))
    await bench.finish()

    assert bench.database.groups[1] == [
        (_INSERT, [(3, ""), (4, "")]),
        (_DELETE, [(1,)]),
        ("UPDATE t SET s = ?", [("x",)]),
        (_INSERT, [(5, "")]),
        (_DELETE, [(2,)]),
    ]
    assert await bench.rows() == [(3, "x"), (4, "x"), (5, "")]


async def test_when_one_fails_then_all_of_its_group_and_behind_it_fail(bench: Bench) -> None:
    bench.write("a", insert(1))
    await _begun(bench)
    bench.write("b", insert(2))
    bench.write("c", insert(1))
    bench.database.may_write.set()
    with pytest.raises(StorageFailed):
        await bench.journal.append([insert(7)], lambda error: None)
    bench.write("d", insert(3))
    await bench.finish()

    assert bench.told == ["a", "b failed", "c failed", "d"]
    assert await bench.rows() == [(1, ""), (3, "")]


async def test_when_many_rows_fail_half_way_then_none_is_written(bench: Bench) -> None:
    bench.database.may_write.set()
    with pytest.raises(StorageFailed):
        await bench.journal.append([insert(*range(250), 7)], lambda error: None)

    assert await bench.rows() == []


async def test_a_single_statement_needs_no_transaction_around_it(bench: Bench) -> None:
    bench.database.may_write.set()
    seen: list[str] = []
    await bench.database.read(lambda connection: connection.set_trace_callback(seen.append))

    await bench.journal.append([insert(1, 2)], lambda error: None)
    await bench.journal.append([insert(3), delete(1)], lambda error: None)

    await bench.database.read(_untraced)
    words = [statement.split()[0] for statement in seen]
    assert words == ["INSERT", "BEGIN", "INSERT", "DELETE", "COMMIT"]


async def test_when_a_transaction_was_left_open_then_nothing_is_acknowledged_inside_of_it(
    bench: Bench,
) -> None:
    """Law 2: a failed commit that could not be undone either."""
    bench.database.may_write.set()
    await bench.database.read(lambda connection: connection.execute("BEGIN"))

    with pytest.raises(StorageFailed):
        await bench.journal.append([insert(1)], lambda error: None)

    await bench.database.read(lambda connection: connection.execute("ROLLBACK"))
    assert await bench.rows() == []


async def test_when_closing_then_what_has_gathered_is_written(bench: Bench) -> None:
    bench.write("a", insert(1))
    await _begun(bench)
    bench.write("b", insert(2))
    bench.database.may_write.set()

    await bench.journal.aclose()
    bench.write("c", insert(3))

    assert bench.told == ["a", "b", "c failed"]


def _untraced(connection: sqlite3.Connection) -> None:
    connection.set_trace_callback(None)


async def _begun(bench: Bench) -> None:
    """Return when the thread is in the middle of the first group."""
    await asyncio.to_thread(bench.database.has_begun.wait, 10)
