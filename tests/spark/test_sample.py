"""The sample: orders from SQS through Spark to a table and a report, by one command."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pyarrow.dataset
import pytest

from samples.spark_orders import __main__ as sample
from samples.spark_orders.__main__ import parse, run
from samples.spark_orders.shop import fate_of

pytestmark = pytest.mark.spark
ORDERS = 300


@pytest.mark.usefixtures("no_aws_settings")
def test_when_the_sample_has_run_then_the_table_has_every_good_order_once_and_the_report_the_rest(
    spark: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """R78: the pump on Spark, the queue as a stream, and the report, through to their files."""
    # The sample sets them before its JVM starts; here there is one already.
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "any")
        monkeypatch.setitem(spark.sparkContext.environment, name, "any")
    monkeypatch.chdir(tmp_path)

    run(spark, parse(["--orders", str(ORDERS), "--out", "out"]))

    fates = {number: fate_of(number) for number in range(1, ORDERS + 1)}
    good = sorted(number for number, fate in fates.items() if fate in ("well", "flaky"))
    table = pyarrow.dataset.dataset(sorted((tmp_path / "out" / "table").glob("*.parquet")))
    assert sorted(table.to_table()["order_id"].to_pylist()) == good
    page = (tmp_path / "out" / "report" / "report.html").read_text()
    assert "nobody has fog in stock" in page
    assert "orders-dead" in page
    assert f"{len(good):,} orders" in capsys.readouterr().out


@pytest.mark.usefixtures("no_aws_settings")
def test_when_the_sample_starts_spark_then_its_workers_will_find_credentials(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """R78: by one command, on a machine without an account; a JVM keeps the environment that it
    was started with.
    """
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        # So that it is put back, also where it was not set.
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    seen: dict[str, str] = {}

    def starting(_: object) -> None:
        seen.update(os.environ)
        raise InterruptedError

    monkeypatch.setattr(sample, "spark_session", starting)
    monkeypatch.setattr(sys, "argv", ["spark_orders"])

    with pytest.raises(InterruptedError):
        sample.main()

    assert {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"} <= seen.keys()
