"""A Parquet ledger: rolled, adopted, and never a row twice, wherever it dies."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from pump.errors import StorageFailed
from pump.observability import vocabulary
from pump.stores.ledger import ParquetLedger, parquet_ledger
from pump.stores.ledger.parquet_ledger import LedgerJournal
from pump.stores.ledger.reading import ParquetReader
from pump.stores.ledger.tally import Query
from pump.testing.virtual_clock import EPOCH_S, VirtualClock

from .parquet_stores import DAY_S, abandon, rows, store_in
from .support import (
    an_outcome,
    ids,
    journal_rows,
    parquet_files,
    parquet_rows,
    write,
)


async def test_when_enough_rows_have_come_then_they_are_rolled_into_a_file_of_their_day(
    tmp_path: Path, clock: VirtualClock
) -> None:
    ledger = ParquetLedger(tmp_path, roll_rows=3)
    await ledger.open("memory", clock)
    for number in range(3):
        ledger.record(an_outcome(number))
    await clock.advance(0.3)

    [path] = parquet_files(tmp_path)
    assert path.parent.name == "day=2025-06-15"
    assert ids(parquet_rows(tmp_path)) == ["m-0", "m-1", "m-2"]
    assert journal_rows(tmp_path) == []
    await ledger.aclose()


async def test_when_few_rows_come_then_they_wait_in_the_journal_and_are_rolled_in_time(
    tmp_path: Path, clock: VirtualClock
) -> None:
    ledger = ParquetLedger(tmp_path, roll_every=timedelta(minutes=15))
    await ledger.open("memory", clock)
    ledger.record(an_outcome(1))
    await clock.advance(60)
    assert (ids(journal_rows(tmp_path)), parquet_files(tmp_path)) == (["m-1"], [])

    await clock.advance(900)

    assert (journal_rows(tmp_path), ids(parquet_rows(tmp_path))) == ([], ["m-1"])
    await ledger.aclose()


async def test_when_closed_then_everything_is_in_files_and_no_journal_is_left(
    tmp_path: Path, clock: VirtualClock
) -> None:
    await write(ParquetLedger(tmp_path), clock, *map(an_outcome, range(5)))

    assert ids(parquet_rows(tmp_path)) == [f"m-{n}" for n in range(5)]
    assert list((tmp_path / "_journal").iterdir()) == []


async def test_when_midnight_passes_then_each_row_is_with_its_own_day(
    tmp_path: Path, clock: VirtualClock
) -> None:
    until_midnight_s = DAY_S - EPOCH_S % DAY_S
    ledger = ParquetLedger(tmp_path, roll_every=timedelta(days=2))
    await ledger.open("memory", clock)
    await clock.advance(until_midnight_s - 0.000_1)
    ledger.record(an_outcome(1))
    await clock.advance(0.000_1)
    ledger.record(an_outcome(2))
    await clock.advance(10)
    await ledger.aclose()

    by_day = {path.parent.name: path.name for path in parquet_files(tmp_path)}
    assert list(by_day) == ["day=2025-06-15", "day=2025-06-16"]
    assert ids(parquet_rows(tmp_path)) == ["m-1", "m-2"]


def test_when_the_clock_is_set_back_then_no_row_is_lost(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    store.append(
        rows(1, time=3 * DAY_S * 1_000_000) + rows(2, time=5) + rows(3, time=DAY_S * 10**6)
    )

    store.close(0.0)

    assert sorted(ids(parquet_rows(tmp_path))) == ["m-1", "m-2", "m-3"]
    assert len(parquet_files(tmp_path)) == 3


def test_when_much_waits_then_files_hold_about_as_many_rows_as_wanted(tmp_path: Path) -> None:
    store = store_in(tmp_path, roll_rows=100)
    for batch in range(10):
        store.append(rows(*range(batch * 40, batch * 40 + 40)))

    store.care(0.0)

    assert ids(parquet_rows(tmp_path)) == [f"m-{n}" for n in range(400)]
    assert len(parquet_files(tmp_path)) == 5
    store.close(0.0)


def test_when_rows_were_rolled_then_their_numbers_are_not_used_again(tmp_path: Path) -> None:
    """Another file of the same name would replace them."""
    store = store_in(tmp_path)
    for number in range(4):
        store.append(rows(number))
        store.care(0.0)
    store.close(0.0)

    assert ids(parquet_rows(tmp_path)) == ["m-0", "m-1", "m-2", "m-3"]


class CrashImages:
    """Copies of a folder before and after each step that a crash could come between."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.taken: list[tuple[str, Path]] = []
        for owner, name in (
            (os, "replace"),
            (parquet_ledger, "_sync"),
            (LedgerJournal, "plan"),
            (LedgerJournal, "forget"),
            (LedgerJournal, "append"),
            (parquet_ledger, "put"),
        ):
            monkeypatch.setattr(owner, name, self._watched(name, getattr(owner, name)))

    def _watched(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            self._take(f"before {name}")
            result = real(*args, **options)
            self._take(f"after {name}")
            return result

        return call

    def _take(self, moment: str) -> None:
        image = self.folder.with_name(f"image-{len(self.taken)}")
        shutil.copytree(self.folder, image)
        self.taken.append((moment, image))


def test_when_it_dies_at_any_step_of_a_roll_then_every_row_is_there_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "ledger"
    store = store_in(folder)
    store.open()
    store.append(rows(*range(5), time=5) + rows(*range(5, 8), time=DAY_S * 1_000_000))
    store.append(rows(8, 9, time=7))
    expected = sorted(f"m-{n}" for n in range(10))
    images = CrashImages(folder, monkeypatch)
    store.care(0.0)
    store.close(0.0)
    monkeypatch.undo()

    assert len(images.taken) > 20
    for moment, image in images.taken:
        assert ParquetReader(image).tally(Query()).row_count == 10, moment
        assert set(ids(parquet_rows(image))) <= set(expected), moment
        heir = store_in(image)
        heir.open()
        heir.append(rows(10))
        heir.care(0.0)
        heir.close(0.0)
        assert sorted(ids(parquet_rows(image))) == sorted([*expected, "m-10"]), moment
        assert list((image / "_journal").iterdir()) == [], moment


def test_when_a_roll_fails_half_way_and_more_rows_come_then_no_row_is_doubled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file is there, the journal could not forget: the next roll makes the same file."""
    store = store_in(tmp_path)
    store.append(rows(1, 2))
    real = LedgerJournal.forget
    monkeypatch.setattr(LedgerJournal, "forget", failing)
    with pytest.raises(StorageFailed):
        store.care(0.0)
    assert ids(parquet_rows(tmp_path)) == ["m-1", "m-2"]
    store.append(rows(3))
    assert ParquetReader(tmp_path).tally(Query()).row_count == 3

    monkeypatch.setattr(LedgerJournal, "forget", real)
    store.care(0.0)

    assert ids(parquet_rows(tmp_path)) == ["m-1", "m-2", "m-3"]
    store.close(0.0)


def failing(*_: object) -> None:
    raise StorageFailed("somewhere", "the disk is full")


def test_when_a_process_died_then_the_next_one_rolls_what_it_left(tmp_path: Path) -> None:
    dead = store_in(tmp_path)
    dead.append(rows(1, 2))
    abandon(dead)
    assert ids(journal_rows(tmp_path)) == ["m-1", "m-2"]

    heir = store_in(tmp_path)
    heir.open()
    with capture_logs() as logs:
        heir.care(0.0)

    assert ids(parquet_rows(tmp_path)) == ["m-1", "m-2"]
    assert journal_rows(tmp_path) == []
    assert [(each["event"], each["count"]) for each in logs] == [(vocabulary.JOURNAL_ADOPTED, 2)]
    heir.close(0.0)
    assert list((tmp_path / "_journal").iterdir()) == []


def test_when_another_process_lives_then_its_journal_is_left_to_it(tmp_path: Path) -> None:
    first, second = store_in(tmp_path), store_in(tmp_path)
    first.append(rows(1))
    second.append(rows(2))

    second.care(0.0)

    assert ids(parquet_rows(tmp_path)) == ["m-2"]
    assert ids(journal_rows(tmp_path)) == ["m-1"]
    first.close(0.0)
    second.close(0.0)
    assert sorted(ids(parquet_rows(tmp_path))) == ["m-1", "m-2"]


def test_when_a_lock_was_left_without_a_journal_then_it_is_removed(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    store.open()
    (tmp_path / "_journal" / "0123.lock").touch()

    store.care(0.0)

    assert not (tmp_path / "_journal" / "0123.lock").exists()
    store.close(0.0)
