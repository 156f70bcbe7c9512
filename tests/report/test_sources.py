"""What a report reads: files, journals, SQLite, and what is damaged or somebody else's."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pump.errors import ConfigurationError, StorageFailed
from pump.report import duckdb_engine as duckdb_module
from pump.report.duckdb_engine import duckdb_engine
from pump.report.job import Report, ReportOptions, run_report
from pump.report.tables import TABLES
from pump.stores.ledger.sqlite_ledger import LedgerFile
from tests.ledger.support import a_row, parquet_files

from .generated import START_US, ordinary, repeated, write_joined, write_ledger


def report_on(ledger: Path, out: Path) -> Report:
    return run_report(ReportOptions(ledger=ledger, out=out), duckdb_engine)


def test_when_the_ledger_is_sqlite_then_the_numbers_are_the_same(
    made: Report, tmp_path: Path
) -> None:
    """R78: the small case has the same report."""
    store = LedgerFile(tmp_path / "ledger.db", None)
    store.append([*ordinary(), *repeated()])
    store.close(0.0)

    found = report_on(tmp_path / "ledger.db", tmp_path / "out")

    for table in TABLES:
        assert found.results[table.name] == made.results[table.name], table.name


def test_when_rows_are_in_a_file_and_still_in_the_journal_then_they_count_once(
    tmp_path: Path,
) -> None:
    """R78: a roll that is under way is seen from both sides."""
    before = write_ledger(tmp_path / "before", [], waiting=[a_row(message_id="m")])
    [journal] = (before / "_journal").glob("*.db")
    after = tmp_path / "after"
    shutil.copytree(before, after)
    rolled = after / "day=2025-06-15" / f"outcomes-{journal.stem}-000000001-000000001.parquet"
    rolled.parent.mkdir()
    write_joined(rolled, [a_row(message_id="m")])

    found = report_on(after, tmp_path / "out")

    assert (found.totals["rows"], found.totals["duplicates"]) == (1, 0)


def test_when_another_job_has_joined_files_then_they_are_read(tmp_path: Path) -> None:
    """R78: other widths, zones and encodings are the same rows."""
    ledger = write_ledger(tmp_path / "ledger", [])
    ledger.mkdir(exist_ok=True)
    write_joined(
        ledger / "day=2025-06-15" / "joined.parquet", [a_row(detail="ü"), a_row(attempts=2)]
    )

    found = report_on(ledger, tmp_path / "out")

    assert found.skipped == ()
    assert found.totals["deliveries"] == 2
    assert found.totals["first_seen"] == START_US


def test_when_files_are_damaged_or_foreign_then_they_are_named_and_passed_over(
    tmp_path: Path,
) -> None:
    """R78: one bad file costs its own rows, and the reader is told."""
    ledger = write_ledger(tmp_path / "ledger", ordinary(50))
    sound = parquet_files(ledger)[0]
    day = sound.parent
    (day / "short.parquet").write_bytes(sound.read_bytes()[:100])
    (day / "empty.parquet").touch()
    (day / "notes.txt").write_text("hello")
    pq.write_table(pa.table({"a": [1]}), day / "foreign.parquet")
    (ledger / "stranger").mkdir()
    (ledger / "_journal").mkdir(exist_ok=True)
    (ledger / "_journal" / "broken.db").write_bytes(b"no database" * 100)

    found = report_on(ledger, tmp_path / "out")

    named = {Path(path).name for path, _ in found.skipped}
    assert named == {
        *("short.parquet", "empty.parquet", "notes.txt", "foreign.parquet", "stranger"),
        "broken.db",
    }
    assert found.totals["rows"] == len(ordinary(50))
    assert "6 files passed over" in found.page.read_text()


def test_when_a_page_of_a_file_is_damaged_then_the_file_is_passed_over(tmp_path: Path) -> None:
    """R78: damage that no footer tells of is found when it is met."""
    ledger = write_ledger(tmp_path / "ledger", ordinary(400))
    first, *others = parquet_files(ledger)
    spoilt = bytearray(first.read_bytes())
    spoilt[200 : len(spoilt) // 2] = b"\xff" * (len(spoilt) // 2 - 200)
    first.write_bytes(spoilt)

    found = report_on(ledger, tmp_path / "out")

    assert [path for path, _ in found.skipped] == [str(first)]
    kept = sum(pq.ParquetFile(path).metadata.num_rows for path in others)
    assert found.totals["rows"] == kept > 0


def test_when_the_ledger_is_another_programs_then_it_is_refused(tmp_path: Path) -> None:
    """R78: with a word on what to do."""
    (tmp_path / "other.db").write_bytes(b"not a database at all" * 50)

    with pytest.raises(StorageFailed):
        report_on(tmp_path / "other.db", tmp_path / "out")


def test_when_there_is_no_ledger_then_the_remedy_is_named(tmp_path: Path) -> None:
    """R78: a path that leads nowhere is a mistake."""
    with pytest.raises(ConfigurationError, match="pump run"):
        report_on(tmp_path / "nowhere", tmp_path / "out")


def test_when_duckdb_is_missing_then_the_extra_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R78: who lacks a package is told which."""
    monkeypatch.setattr(duckdb_module, "find_spec", lambda name: None)

    with pytest.raises(ConfigurationError, match=r"pumphouse\[report\]"):
        report_on(write_ledger(tmp_path / "ledger", [a_row()]), tmp_path / "out")


def test_when_names_look_like_patterns_then_they_are_names(tmp_path: Path) -> None:
    """R78: whatever a folder is called."""
    ledger = write_ledger(tmp_path / "it's [a] *le?dger*", [a_row()])

    assert report_on(ledger, tmp_path / "out").totals["rows"] == 1
