"""Ordinary pump processes on `pump local`, to compare the pump on Spark with."""

from __future__ import annotations

from ..reading import Reading
from ..spark.processes import measure_processes


def run(count: int, *, work: str, processes: float) -> Reading:
    return measure_processes(count, work, int(processes))
