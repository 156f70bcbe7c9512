"""The report over very many outcomes, on either engine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs

from ..reading import Reading
from .backlog import Clock
from .memory import PeakMemory, own_processes
from .outcomes import make_ledger

_LEDGER, _OUT = Path("ledger"), Path("report")
_WARM_UP = 10_000


def measure_report(count: int, engine: str) -> Reading:
    """From the question to the HTML. Making the ledger, and a session, does not count."""
    from pump.report.job import ReportOptions, run_report

    make_ledger(Path("warm-up"), min(count, _WARM_UP))
    make_ledger(_LEDGER, count)
    with _engine(engine) as chosen:
        run_report(ReportOptions(ledger=Path("warm-up"), out=Path("warmed-up")), chosen)
        with PeakMemory() as memory:
            clock = Clock(own_processes)
            made = run_report(ReportOptions(ledger=_LEDGER, out=_OUT), chosen)
            reading = clock.reading(count)
    assert made.totals["rows"] == count
    return attrs.evolve(reading, rss_mib=(memory.peak_mib,))


@contextmanager
def _engine(name: str) -> Iterator[Any]:
    if name == "duckdb":
        from pump.report.duckdb_engine import duckdb_engine

        yield duckdb_engine
        return
    from pump.spark.report import spark_engine
    from pump.spark.session import SparkOptions, spark_session

    with spark_session(SparkOptions(master="local[2]", app_name="benchmark")) as spark:
        yield spark_engine(spark)
