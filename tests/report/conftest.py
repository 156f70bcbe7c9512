"""A ledger and its report, made once, and the command line called inside the test's process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from pump.cli.root import cli
from pump.report.duckdb_engine import duckdb_engine
from pump.report.job import Report, ReportOptions, run_report

from .generated import ordinary, repeated, write_ledger

Pump = Callable[..., Result]


@pytest.fixture(scope="session")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ordinary rows in files, repeated ones in the journal of a process that died."""
    folder = tmp_path_factory.mktemp("report") / "ledger"
    return write_ledger(folder, ordinary(), waiting=repeated())


@pytest.fixture(scope="session")
def made(ledger: Path, tmp_path_factory: pytest.TempPathFactory) -> Report:
    out = tmp_path_factory.mktemp("report") / "out"
    return run_report(ReportOptions(ledger=ledger, out=out), duckdb_engine)


@pytest.fixture
def pump(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Pump:
    """`pump(...)` in the working folder `tmp_path`."""
    monkeypatch.chdir(tmp_path)
    runner = CliRunner()

    def call(*arguments: str) -> Result:
        return runner.invoke(cli, arguments, prog_name="pump")

    return call
