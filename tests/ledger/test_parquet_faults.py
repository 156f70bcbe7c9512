"""A Parquet ledger among what is spoilt, foreign, full or too old."""

from __future__ import annotations

import asyncio
import errno
import shutil
import threading
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from pump.clock import SYSTEM_CLOCK
from pump.errors import ConfigurationError, StorageFailed
from pump.observability import vocabulary
from pump.stores.ledger import ParquetLedger
from pump.stores.ledger.parquet_ledger import LedgerJournal
from pump.stores.ledger.reading import ParquetReader
from pump.stores.ledger.tally import Query
from pump.testing.virtual_clock import VirtualClock

from .parquet_stores import DAY_S, abandon, rows, store_in
from .support import (
    an_outcome,
    files_of_at_most,
    ids,
    journal_rows,
    parquet_files,
    parquet_rows,
    read_only,
)


def test_when_a_journal_is_damaged_then_it_is_named_once_and_left_and_the_others_are_rolled(
    tmp_path: Path,
) -> None:
    dead = store_in(tmp_path)
    dead.append(rows(1))
    abandon(dead)
    spoilt = tmp_path / "_journal" / "00000000000000000000000000000000.db"
    spoilt.write_bytes(b"dear diary " * 1000)
    heir = store_in(tmp_path)
    heir.open()

    with capture_logs() as logs:
        heir.care(0.0)
        heir.care(1.0)
    heir.close(0.0)

    refused = [each for each in logs if each["event"] == vocabulary.JOURNAL_REFUSED]
    assert [(each["log_level"], each["path"]) for each in refused] == [("error", str(spoilt))]
    assert spoilt.read_bytes() == b"dear diary " * 1000
    assert ids(parquet_rows(tmp_path)) == ["m-1"]


def test_when_a_batch_of_a_journal_is_damaged_then_it_is_left_for_a_person(tmp_path: Path) -> None:
    dead = store_in(tmp_path)
    dead.append(rows(1))
    assert dead._journal is not None
    dead._journal._connection.execute("UPDATE batches SET rows = x'c1'")
    path = dead._journal.path
    abandon(dead)
    heir = store_in(tmp_path)
    heir.open()

    with capture_logs() as logs:
        heir.care(0.0)
    heir.close(0.0)

    assert [(each["event"], each["path"]) for each in logs] == [
        (vocabulary.JOURNAL_REFUSED, str(path))
    ]
    assert path.exists()
    assert ParquetReader(tmp_path).tally(Query()).skipped[0][0].startswith(str(path.parent))


async def test_when_the_journal_is_removed_while_in_use_then_a_new_one_is_made(
    tmp_path: Path, clock: VirtualClock
) -> None:
    ledger = ParquetLedger(tmp_path / "ledger")
    await ledger.open("memory", clock)
    await asyncio.to_thread(shutil.rmtree, tmp_path / "ledger")

    ledger.record(an_outcome(1))
    await clock.advance(5)
    await ledger.aclose()

    assert ids(parquet_rows(tmp_path / "ledger")) == ["m-1"]


async def test_when_the_disk_is_full_then_rows_are_kept_and_rolled_once_there_is_room(
    tmp_path: Path, clock: VirtualClock
) -> None:
    ledger = ParquetLedger(tmp_path, roll_rows=100)
    await ledger.open("memory", clock)
    with files_of_at_most(40_000):
        for number in range(1_000):
            ledger.record(an_outcome(number, detail=f"{number}" * 100))
        await clock.advance(10)
        assert ledger.waiting_count == 1_000

    await clock.advance(60)
    await ledger.aclose()

    assert sorted(ids(parquet_rows(tmp_path))) == sorted(f"m-{n}" for n in range(1_000))
    assert list((tmp_path / "_journal").iterdir()) == []


async def test_when_a_file_cannot_be_written_then_its_rows_stay_in_the_journal(
    tmp_path: Path, clock: VirtualClock
) -> None:
    (tmp_path / "day=2025-06-15").write_text("in the way")
    ledger = ParquetLedger(tmp_path, roll_rows=1)
    await ledger.open("memory", clock)
    ledger.record(an_outcome(1))
    with capture_logs() as logs:
        await clock.advance(1)
    assert ids(journal_rows(tmp_path)) == ["m-1"]
    assert {each["event"] for each in logs} == {vocabulary.LEDGER_UNROLLED}

    (tmp_path / "day=2025-06-15").unlink()
    await clock.advance(10)

    assert ids(parquet_rows(tmp_path)) == ["m-1"]
    await ledger.aclose()


@pytest.mark.parametrize("place", ["file", "file/ledger"])
async def test_when_the_folder_cannot_be_made_then_the_app_is_told_at_once(
    place: str, tmp_path: Path, clock: VirtualClock
) -> None:
    (tmp_path / "file").write_text("in the way")

    with pytest.raises(StorageFailed, match="move it away"):
        await ParquetLedger(tmp_path / place).open("memory", clock)


async def test_when_the_folder_may_not_be_written_then_the_app_is_told_at_once(
    tmp_path: Path, clock: VirtualClock
) -> None:
    with read_only(tmp_path), pytest.raises(StorageFailed, match="make it writable"):
        await ParquetLedger(tmp_path / "ledger").open("memory", clock)


async def test_when_pyarrow_is_not_installed_then_the_extra_is_named(
    tmp_path: Path, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pump.stores.ledger.parquet", None)
    monkeypatch.delattr("pump.stores.ledger.parquet", raising=False)

    with pytest.raises(ConfigurationError, match=r"pip install 'pumphouse\[ledger\]'"):
        await ParquetLedger(tmp_path).open("memory", clock)


def test_when_days_are_too_old_then_they_are_removed_and_nothing_else_is(tmp_path: Path) -> None:
    store = store_in(tmp_path, keep=timedelta(days=2))
    for day in range(6):
        store.append(rows(day, time=day * DAY_S * 1_000_000 + 5))
    store.care(0.0)
    strangers = [
        tmp_path / "day=1970-01-01" / "notes.txt",
        tmp_path / "day=1970-01-02" / "part-0001.parquet",
        tmp_path / "day=1970-13-45" / "outcomes.parquet",
        tmp_path / "1970-01-01" / "old.parquet",
    ]
    elsewhere = tmp_path.with_name(f"{tmp_path.name}-elsewhere")
    shutil.copytree(tmp_path / "day=1970-01-01", elsewhere)
    (tmp_path / "day=1969-12-31").symlink_to(elsewhere)
    for stranger in strangers:
        stranger.parent.mkdir(exist_ok=True)
        stranger.write_text("not ours")

    store.care(now_s=5 * DAY_S + 100.0)
    store.close(0.0)

    assert [path.read_text() for path in strangers] == ["not ours"] * 4
    assert len(list(elsewhere.iterdir())) == 1
    ours = [path for path in parquet_files(tmp_path) if path.name.startswith("outcomes-")]
    left = {path.parent.name for path in ours} - {"day=1969-12-31"}
    assert left == {"day=1970-01-04", "day=1970-01-05", "day=1970-01-06"}
    assert not (tmp_path / "day=1970-01-03").exists()


def test_when_rows_cannot_be_rolled_then_days_that_are_too_old_are_removed_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a full disk, that may be what makes room."""
    store = store_in(tmp_path, keep=timedelta(days=2))
    store.append(rows(1, time=5))
    store.care(0.0)
    store.append(rows(2, time=9 * DAY_S * 1_000_000))

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("pump.stores.ledger.parquet.write_rows", full)
    with pytest.raises(StorageFailed, match="free some disk space"):
        store.care(now_s=9 * DAY_S + 1.0)
    assert parquet_files(tmp_path) == []

    monkeypatch.undo()
    store.close(now_s=9 * DAY_S + 2.0)
    assert ids(parquet_rows(tmp_path)) == ["m-2"]


async def test_when_the_disk_is_full_until_the_ledger_gave_up_then_its_journal_is_let_go(
    tmp_path: Path, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its rows are for the next one that opens, also while this process lives."""
    ledger = ParquetLedger(tmp_path)
    await ledger.open("memory", clock)
    ledger.record(an_outcome(1))
    await ledger.flush()
    monkeypatch.setattr(LedgerJournal, "append", full_disk)
    ledger.record(an_outcome(2))
    closing = asyncio.create_task(ledger.aclose())
    await clock.advance(6)
    await closing
    monkeypatch.undo()
    for thread in threading.enumerate():
        if thread.name == "pump-ledger":
            await asyncio.to_thread(thread.join, 10)

    heir = ParquetLedger(tmp_path)
    await heir.open("memory", clock)
    await heir.aclose()

    assert ids(parquet_rows(tmp_path)) == ["m-1"]
    assert list((tmp_path / "_journal").iterdir()) == []


def full_disk(*_: object) -> None:
    raise StorageFailed("somewhere", "the disk is full") from OSError(errno.ENOSPC, "full")


def test_when_a_day_is_partly_young_enough_then_all_of_it_is_kept(tmp_path: Path) -> None:
    store = store_in(tmp_path, keep=timedelta(days=1))
    store.append(rows(1, time=5))

    store.care(now_s=DAY_S + 86_399.0)
    assert ids(parquet_rows(tmp_path)) == ["m-1"]
    store.care(now_s=2 * DAY_S + 1.0)

    assert parquet_files(tmp_path) == []
    store.close(0.0)


def test_when_days_are_kept_for_longer_than_there_is_time_then_none_is_removed(
    tmp_path: Path,
) -> None:
    store = store_in(tmp_path, keep=timedelta.max)
    store.append(rows(1, time=5))

    store.care(now_s=9 * DAY_S)
    store.close(now_s=9 * DAY_S)

    assert ids(parquet_rows(tmp_path)) == ["m-1"]


@pytest.mark.parametrize(
    "options",
    [
        {"roll_rows": 0},
        {"roll_every": timedelta(0)},
        {"keep": timedelta(hours=1)},
    ],
)
def test_when_an_option_makes_no_sense_then_it_is_refused(
    options: dict[str, Any], tmp_path: Path
) -> None:
    """R56."""
    with pytest.raises(ConfigurationError, match=next(iter(options))):
        ParquetLedger(tmp_path, **options)


async def test_when_two_apps_of_one_process_share_a_folder_then_each_has_its_own_journal(
    tmp_path: Path,
) -> None:
    first, second = ParquetLedger(tmp_path), ParquetLedger(tmp_path)
    await first.open("memory", SYSTEM_CLOCK)
    await second.open("memory", SYSTEM_CLOCK)
    first.record(an_outcome(1))
    second.record(an_outcome(2))
    await first.aclose()
    await second.aclose()

    assert sorted(ids(parquet_rows(tmp_path))) == ["m-1", "m-2"]
