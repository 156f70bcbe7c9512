"""The benchmarks' part on Spark, with few messages: `make bench` shall not find out first."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks.contenders.spark_pump import backlog, consume

pytestmark = pytest.mark.spark


def test_when_the_pump_on_spark_is_measured_then_every_message_is_in_the_ledger(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Measured from the first delete to the last, with the outcomes counted by `consume`."""
    monkeypatch.chdir(tmp_path)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        # The JVM has the environment of its start; this is what workers get beside it.
        monkeypatch.setitem(spark.sparkContext.environment, name, "benchmark")

    with backlog("toil") as waiting:
        reading = consume(spark, waiting, 60)

    assert 0 < reading.messages < 60
    assert reading.wall_s > 0
    assert reading.cpu_s > 0
