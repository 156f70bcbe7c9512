"""The ledger that the report is measured over, and the report on the engine without a JVM."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.contenders.spark_report import make_ledger, run

pytestmark = pytest.mark.spark


def test_when_a_ledger_is_made_up_then_it_has_the_rows_and_the_columns_of_a_real_one(
    tmp_path: Path,
) -> None:
    """The report is measured over what a ledger would hold."""
    from pyarrow import dataset

    from pump.stores.ledger.parquet import SCHEMA

    make_ledger(tmp_path / "ledger", 3000)

    found = dataset.dataset(tmp_path / "ledger", partitioning="hive")
    rows = found.to_table()
    assert rows.select(SCHEMA.names).schema.equals(SCHEMA)
    assert rows.num_rows == 3000
    assert len(rows["day"].unique()) == 10
    seconds = rows.filter(dataset.field("attempts") == 2)
    firsts = rows.filter(dataset.field("status") == "retrying")
    assert set(firsts["message_id"].to_pylist()) == set(seconds["message_id"].to_pylist())
    is_told = dataset.field("error_type").is_valid()
    assert rows.filter(is_told)["status"].unique().to_pylist() == ["retrying", "dead-lettered"]


def test_when_a_ledger_is_made_up_again_then_it_has_the_same_rows(tmp_path: Path) -> None:
    from pyarrow import dataset

    for name in ("one", "other"):
        make_ledger(tmp_path / name, 500)

    one, other = (dataset.dataset(tmp_path / name).to_table() for name in ("one", "other"))
    assert one.equals(other)


def test_when_the_report_is_measured_then_it_has_seen_every_outcome(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over the made-up ledger, on the engine without a JVM."""
    monkeypatch.chdir(tmp_path)

    reading = run(500, engine="duckdb")

    assert reading.messages == 500
    assert reading.wall_s > 0
    assert reading.rss_mib[0] > 0
