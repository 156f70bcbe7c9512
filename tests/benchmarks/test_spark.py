"""What is measured beside Spark, as far as no JVM is needed; the tables, and the made-up ledger."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.catalogue import BY_NAME
from benchmarks.contender import Group
from benchmarks.reading import Reading, Span
from benchmarks.rounds import Results
from benchmarks.spark.catalogue import SPARK_RATIOS
from benchmarks.spark.outcomes import make_ledger
from benchmarks.spark.reports import measure_report
from benchmarks.spark.tables import spark_grids
from benchmarks.summary import aims

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.timeout(60)
def test_when_two_processes_are_measured_then_every_message_is_in_the_ledger(
    tmp_path: Path,
) -> None:
    """What the pump on Spark is compared with consumes the same queue, and records too; the child
    itself counts the ledger. Measured is what was left after the first delete.
    """
    child = subprocess.run(
        [sys.executable, "-m", "benchmarks.child", "spark-processes-2", "3000"],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )

    assert child.returncode == 0, child.stderr
    reading = Reading.from_json(json.loads(child.stdout)["reading"])
    assert 0 < reading.messages < 3000
    assert reading.wall_s > 0
    assert reading.cpu_s > 0


@pytest.mark.spark
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


@pytest.mark.spark
def test_when_a_ledger_is_made_up_again_then_it_has_the_same_rows(tmp_path: Path) -> None:
    from pyarrow import dataset

    for name in ("one", "other"):
        make_ledger(tmp_path / name, 500)

    one, other = (dataset.dataset(tmp_path / name).to_table() for name in ("one", "other"))
    assert one.equals(other)


@pytest.mark.spark
def test_when_the_report_is_measured_then_it_has_seen_every_outcome(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over the made-up ledger, on the engine without a JVM."""
    monkeypatch.chdir(tmp_path)

    reading = measure_report(500, "duckdb")

    assert reading.messages == 500
    assert reading.wall_s > 0
    assert reading.rss_mib[0] > 0


def test_when_spark_was_measured_then_the_tables_compare_it_with_processes_and_duckdb() -> None:
    readings = {
        "spark-processes-1": [_reading(1000, 2.0)],
        "spark-processes-2": [_reading(1000, 1.0)],
        "spark-local-2": [_reading(1000, 1.25)],
        "spark-toil-local-1": [_reading(100, 2.0)],
        "spark-toil-local-2": [_reading(100, 1.0)],
        "report-duckdb": [_reading(5000, 1.0, rss_mib=300.0)],
        "report-spark": [_reading(5000, 2.0, rss_mib=900.0)],
    }

    pumps, reports = spark_grids(Results(readings))
    found = {aim.title: aim for aim in aims(readings)}

    assert pumps.lines[2][2:6] == ("800", "2,000", "1.60", "0.80")
    assert [line[2:6] for line in reports.lines] == [
        ("1.0", "5,000", "300", "1.00"),
        ("2.0", "2,500", "900", "0.50"),
    ]
    assert found["The pump on Spark, local[2], to two processes"].is_met
    assert found["Two cores of Spark to one, the same"].measured.median == pytest.approx(2.0)


def test_when_a_part_could_not_be_measured_then_its_line_says_what_it_needs() -> None:
    missing = {"spark-local-2": "pumphouse[spark] (no pyspark)"}

    pumps, reports = spark_grids(Results(missing=missing))

    assert pumps.lines == (
        ("the pump on Spark, local[2]", *["–"] * 5, "needs pumphouse[spark,sqs,local]"),
    )
    assert reports.lines == ()


def test_every_contender_of_an_aim_is_in_the_group() -> None:
    for _, _, ours, theirs in SPARK_RATIOS:
        assert BY_NAME[ours].group is BY_NAME[theirs].group is Group.SPARK


def test_by_default_the_report_is_measured_over_ten_million_outcomes() -> None:
    """`--messages` makes it fewer, in proportion."""
    assert BY_NAME["report-spark"].messages(50_000) == 10_000_000
    assert BY_NAME["report-spark"].messages(500) == 100_000


def _reading(messages: int, wall_s: float, *, rss_mib: float = 0.0) -> Reading:
    span = Span(wall_s=wall_s, cpu_s=messages * 2e-3)
    return Reading(messages=messages, spans={"consume": span}, rss_mib=(rss_mib,))
