"""The folder of a report: ours is written again, others' is left alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from pump.errors import ConfigurationError
from pump.message import Message
from pump.report.duckdb_engine import duckdb_engine
from pump.report.job import ReportOptions, run_report
from pump.report.parquet_files import write_table
from pump.report.snapshot import row_of
from pump.report.tables import SNAPSHOT, TABLES
from tests.ledger.support import a_row, read_only

from .generated import write_ledger


def a_snapshot(path: Path) -> Path:
    write_table(SNAPSHOT, [row_of(Message(body=b"x", id="d"), "dead", 10**15)], path)
    return path


def test_when_the_folder_is_a_reports_then_it_is_written_again(tmp_path: Path) -> None:
    """R78: the newest report replaces the one before, all of it."""
    ledger = write_ledger(tmp_path / "ledger", [a_row()])
    snapshot = a_snapshot(tmp_path / "snapshot.parquet")
    out = tmp_path / "deep" / "out"
    with_letters = ReportOptions(ledger=ledger, out=out, dead_letters=snapshot)
    run_report(with_letters, duckdb_engine)
    assert (out / "dead_letters.parquet").exists()

    run_report(ReportOptions(ledger=ledger, out=out), duckdb_engine)

    names = {path.name for path in out.iterdir()}
    assert names == {"report.html", *(f"{table.name}.parquet" for table in TABLES)}


def test_when_the_folder_is_somebody_elses_then_nothing_is_written(tmp_path: Path) -> None:
    """R78: unless it is asked for."""
    ledger = write_ledger(tmp_path / "ledger", [a_row()])
    out = tmp_path / "out"
    out.mkdir()
    (out / "thesis.txt").write_text("years of work")

    with pytest.raises(ConfigurationError, match=r"thesis\.txt"):
        run_report(ReportOptions(ledger=ledger, out=out), duckdb_engine)

    assert [path.name for path in out.iterdir()] == ["thesis.txt"]
    run_report(ReportOptions(ledger=ledger, out=out, force=True), duckdb_engine)
    assert (out / "thesis.txt").read_text() == "years of work"
    assert (out / "report.html").exists()


def test_when_the_folder_cannot_be_made_then_the_setting_is_named(tmp_path: Path) -> None:
    """R78: a file in the way, or no permission."""
    ledger = write_ledger(tmp_path / "ledger", [a_row()])
    (tmp_path / "file").touch()
    locked = tmp_path / "locked"
    locked.mkdir()

    with pytest.raises(ConfigurationError, match="out"):
        run_report(ReportOptions(ledger=ledger, out=tmp_path / "file"), duckdb_engine)
    with read_only(locked), pytest.raises(ConfigurationError, match="out"):
        run_report(ReportOptions(ledger=ledger, out=locked / "out"), duckdb_engine)
