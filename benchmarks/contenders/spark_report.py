"""The report over a ledger of very many outcomes, on DuckDB or on Spark."""

from __future__ import annotations

from ..reading import Reading
from ..spark.reports import measure_report


def run(count: int, *, engine: str) -> Reading:
    return measure_report(count, engine)
