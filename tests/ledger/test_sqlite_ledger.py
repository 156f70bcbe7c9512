"""A ledger in one SQLite file."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing, suppress
from datetime import timedelta
from pathlib import Path

import pytest

from pump.clock import SYSTEM_CLOCK
from pump.errors import ConfigurationError, StorageFailed
from pump.stores.ledger import SqliteLedger, sqlite_ledger
from pump.stores.ledger.sqlite_ledger import LedgerFile
from pump.testing.virtual_clock import VirtualClock

from .support import a_row, an_outcome, files_of_at_most, ids, sqlite_rows, write

ROOT = Path(__file__).resolve().parents[2]


async def test_when_it_is_opened_again_then_earlier_rows_are_still_there(
    tmp_path: Path, clock: VirtualClock
) -> None:
    path = tmp_path / "new" / "folder" / "ledger.db"
    ledger = SqliteLedger(path)
    await write(ledger, clock, an_outcome(1))
    await clock.advance(1)
    await write(ledger, clock, an_outcome(2))

    rows = sqlite_rows(path)
    assert ids(rows) == ["m-1", "m-2"]
    assert rows[0].pump != rows[1].pump
    assert not path.with_name("ledger.db-wal").exists()


def test_when_rows_are_kept_for_longer_than_there_is_time_then_none_is_removed(
    tmp_path: Path,
) -> None:
    store = LedgerFile(tmp_path / "ledger.db", timedelta.max)
    store.append([a_row(time=5)])

    store.care(now_s=86_400.0)
    store.close(now_s=86_400.0)

    assert len(sqlite_rows(tmp_path / "ledger.db")) == 1


async def test_when_rows_are_older_than_keep_then_they_are_removed_and_no_others(
    tmp_path: Path, clock: VirtualClock
) -> None:
    ledger = SqliteLedger(tmp_path / "ledger.db", keep=timedelta(hours=1))
    await ledger.open("memory", clock)
    ledger.record(an_outcome(1))
    await clock.advance(1_800)
    ledger.record(an_outcome(2))
    await clock.advance(1_900)

    assert ids(sqlite_rows(tmp_path / "ledger.db")) == ["m-2"]
    await ledger.aclose()


def test_when_much_is_too_old_then_it_is_removed_bit_by_bit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pump.stores.ledger.sqlite_ledger._PRUNE_AT_ONCE", 10)
    store = LedgerFile(tmp_path / "ledger.db", timedelta(seconds=10))
    store.append([a_row(time=n, message_id=str(n)) for n in range(25)])
    store.append([a_row(time=100_000_000, message_id="young")])

    store.care(now_s=105.0)
    store.close(105.0)

    assert ids(sqlite_rows(tmp_path / "ledger.db")) == ["young"]


def a_text(path: Path) -> None:
    path.write_text("dear diary " * 100)


def a_foreign_database(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE outcomes (day TEXT)")


def a_newer_ledger(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(f"PRAGMA application_id = {0x504D504C}")
        connection.execute("PRAGMA user_version = 99")
        connection.execute("CREATE TABLE outcomes (time INTEGER)")


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (a_text, "is no SQLite database"),
        (a_foreign_database, "another program's"),
        (a_newer_ledger, "version 99"),
    ],
)
async def test_when_the_file_is_not_ours_then_it_is_named_and_left_alone(
    make: Callable[[Path], None], why: str, tmp_path: Path, clock: VirtualClock
) -> None:
    """R56."""
    path = tmp_path / "ledger.db"
    make(path)
    before = path.read_bytes()

    with pytest.raises(StorageFailed, match=why) as failure:
        await SqliteLedger(path).open("memory", clock)

    assert failure.value.path == str(path)
    assert path.read_bytes() == before


async def test_when_the_path_is_a_folder_then_that_is_said(
    tmp_path: Path, clock: VirtualClock
) -> None:
    with pytest.raises(StorageFailed, match="this is a folder"):
        await SqliteLedger(tmp_path).open("memory", clock)


async def test_when_the_file_is_empty_then_it_becomes_a_ledger(
    tmp_path: Path, clock: VirtualClock
) -> None:
    (tmp_path / "ledger.db").touch()

    await write(SqliteLedger(tmp_path / "ledger.db"), clock, an_outcome(1))

    assert ids(sqlite_rows(tmp_path / "ledger.db")) == ["m-1"]


async def test_when_the_file_is_removed_while_in_use_then_a_new_one_is_made(
    tmp_path: Path, clock: VirtualClock
) -> None:
    path = tmp_path / "ledger.db"
    ledger = SqliteLedger(path)
    await ledger.open("memory", clock)
    ledger.record(an_outcome(1))
    await clock.advance(1)
    await asyncio.to_thread(remove_files, tmp_path)

    ledger.record(an_outcome(2))
    await clock.advance(5)
    await ledger.aclose()

    assert ids(sqlite_rows(path)) == ["m-2"]


def remove_files(folder: Path) -> None:
    for path in folder.iterdir():
        path.unlink()


async def test_when_the_disk_is_full_then_rows_wait_until_there_is_room(
    tmp_path: Path, clock: VirtualClock
) -> None:
    ledger = SqliteLedger(tmp_path / "ledger.db")
    await ledger.open("memory", clock)
    with files_of_at_most(60_000):
        for number in range(600):
            ledger.record(an_outcome(number, detail="x" * 1_000))
        await clock.advance(10)
        assert ledger.waiting_count == 600

    await clock.advance(10)
    await ledger.aclose()

    assert sorted(ids(sqlite_rows(tmp_path / "ledger.db"))) == sorted(f"m-{n}" for n in range(600))
    assert ledger.dropped_count == 0


async def test_when_another_program_holds_the_file_then_rows_wait(
    tmp_path: Path, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pump.stores.ledger.sqlite_ledger.BUSY_S", 0.01)
    path = tmp_path / "ledger.db"
    ledger = SqliteLedger(path)
    await ledger.open("memory", clock)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        ledger.record(an_outcome(1))
        await clock.advance(1)
        assert ledger.waiting_count == 1
        other.execute("COMMIT")

    await clock.advance(10)

    assert ids(sqlite_rows(path)) == ["m-1"]
    await ledger.aclose()


@pytest.mark.timeout(120)
def test_when_many_processes_begin_at_once_then_every_row_is_kept(tmp_path: Path) -> None:
    """R44: the file is made by all of them together."""
    program = [sys.executable, "-m", "tests.ledger.child_writer", "sqlite", str(tmp_path / "l.db")]
    children = [
        subprocess.Popen([*program, f"p{n}", "200"], cwd=ROOT, stdout=subprocess.DEVNULL)
        for n in range(4)
    ]

    assert [child.wait(100) for child in children] == [0] * 4
    expected = {f"p{n}-{number}" for n in range(4) for number in range(200)}
    found = ids(sqlite_rows(tmp_path / "l.db"))
    assert (set(found), len(found)) == (expected, len(expected))


def test_when_tables_are_made_between_two_looks_then_the_file_is_not_taken_for_anothers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R44: what another process makes is seen whole, or not at all."""
    path = tmp_path / "l.db"
    path.touch()
    look = sqlite_ledger._identity

    def identity(connection: sqlite3.Connection) -> tuple[int, int]:
        seen = look(connection)
        monkeypatch.setattr(sqlite_ledger, "_identity", look)
        other = sqlite3.connect(path, isolation_level=None, timeout=0)
        with closing(other), suppress(sqlite3.OperationalError):
            sqlite_ledger._make_tables(other, sqlite_ledger.FORMAT)
        return seen

    monkeypatch.setattr(sqlite_ledger, "_identity", identity)

    sqlite_ledger.open_file(path, sqlite_ledger.FORMAT).close()


def test_when_a_path_is_no_file_then_it_is_refused() -> None:
    """R56."""
    with pytest.raises(ConfigurationError, match=r"SqliteLedger\.path"):
        SqliteLedger(":memory:")
    with pytest.raises(ConfigurationError, match=r"SqliteLedger\.keep"):
        SqliteLedger("l.db", keep=timedelta(0))


async def test_when_the_file_may_not_be_written_then_the_app_is_told_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def denied(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "mkdir", denied)

    with pytest.raises(StorageFailed, match="make it writable"):
        await SqliteLedger(tmp_path / "ledger.db").open("memory", SYSTEM_CLOCK)
