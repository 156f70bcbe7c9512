"""The report on Spark: the same tables as on DuckDB, from the same SQL."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pump.message import Message
from pump.report.duckdb_engine import duckdb_engine
from pump.report.fingerprint import fingerprint_of, normalised
from pump.report.job import ReportOptions, run_report
from pump.report.parquet_files import write_table
from pump.report.snapshot import row_of
from pump.report.tables import SNAPSHOT
from pump.spark.report import SparkEngine, spark_engine
from pump.spark.session import session_beside
from tests.ledger.support import a_row
from tests.report.generated import ordinary, repeated, write_joined, write_ledger
from tests.report.texts import TEXTS

pytestmark = pytest.mark.spark


def a_snapshot(path: Path) -> Path:
    """Dead letters of two kinds, and one that nobody has rejected."""
    messages = [
        Message(
            body=b"{}",
            id=f"d-{number}",
            type="Pay",
            created_at_s=1_750_000_000.0,
            headers={
                "originalTopic": "orders",
                "rejectionReason": "DeliveryError",
                "rejectionMessage": f"ValueError: order {number} of 'c-{number}'",
                "rejectionTimestamp": f"2026-11-16T08:{number:02d}:00+00:00",
                "attempts": str(number % 4),
            },
        )
        for number in range(20)
    ]
    rows = [row_of(each, "dead", 1_760_000_000_000_000) for each in messages]
    rows.append(row_of(Message(body=b"", id="bare"), "dead", 1_760_000_000_000_000))
    write_table(SNAPSHOT, rows, path)
    return path


def nearly(value: Any) -> Any:
    """Everything is compared, floats to within 1e-9."""
    return pytest.approx(value, rel=1e-9, abs=1e-9) if isinstance(value, float) else value


def test_when_both_engines_report_then_every_table_is_the_same(spark: Any, tmp_path: Path) -> None:
    """R78: one SQL, one set of numbers; a test holds both engines to them."""
    odd = tmp_path / "le[dg]er *"
    ledger = write_ledger(odd, ordinary(600), waiting=repeated())
    write_joined(ledger / "day=2025-06-20" / "joined.parquet", ordinary(50, seed=8))
    snapshot = a_snapshot(tmp_path / "snapshot.parquet")

    made = {
        name: run_report(
            ReportOptions(ledger=ledger, out=tmp_path / name, dead_letters=snapshot), engine
        )
        for name, engine in (("duckdb", duckdb_engine), ("spark", spark_engine(spark)))
    }

    duckdb, on_spark = made["duckdb"].results, made["spark"].results
    assert made["duckdb"].totals["dead_letters"] == 21
    assert {name: len(rows) for name, rows in duckdb.items() if not rows} == {}
    assert set(duckdb) == set(on_spark)
    for name, rows in duckdb.items():
        assert len(rows) == len(on_spark[name]), name
        for ours, theirs in zip(rows, on_spark[name], strict=True):
            assert list(theirs) == [nearly(value) for value in ours], name
    assert spark.catalog.listTables() == []


def test_when_ages_add_up_to_more_than_64_bits_then_both_engines_have_their_mean(
    spark: Any, tmp_path: Path
) -> None:
    """R78: Spark is for very many outcomes, and a foreign sender's time may be 1970."""
    rows = [a_row(message_id=f"m-{n}", age_s=1e9) for n in range(10_000)]
    ledger = write_ledger(tmp_path / "ledger", rows)

    made = {
        name: run_report(ReportOptions(ledger=ledger, out=tmp_path / name), engine)
        for name, engine in (("duckdb", duckdb_engine), ("spark", spark_engine(spark)))
    }

    assert made["duckdb"].results["latency"] == made["spark"].results["latency"]
    [age, _] = [row for row in made["spark"].results["latency"] if row[0] == "age_s"]
    assert age[2:4] == (10_000, 1e9)


def test_when_texts_are_normalised_on_spark_then_they_are_as_in_python(spark: Any) -> None:
    """R78: a fingerprint is the same wherever it was made."""
    with session_beside(spark) as session:
        engine = SparkEngine(session)
        session.createDataFrame(list(enumerate(TEXTS)), "n INT, t STRING").createOrReplaceTempView(
            "texts"
        )
        text, fingerprint = engine.dialect.normalised("t"), engine.dialect.fingerprint("t")
        rows = engine.rows(f"SELECT n, {text}, {fingerprint} FROM texts")

    found = {n: (text, fingerprint) for n, text, fingerprint in rows}
    assert found == {
        number: (normalised(each), fingerprint_of(each)) for number, each in enumerate(TEXTS)
    }
