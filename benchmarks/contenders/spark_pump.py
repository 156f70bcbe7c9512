"""The pump on Spark on `pump local`."""

from __future__ import annotations

from ..reading import Reading
from ..spark.on_spark import measure_on_spark


def run(count: int, *, work: str, cores: float) -> Reading:
    return measure_on_spark(count, work, int(cores))
