"""Pump on Spark: the app's own pumps in tasks, slice by slice, until told to stop.

Spark only says where tasks run and starts them again. A message is received, handled and settled
in one task, under a lease as ever; its outcome is durable in the ledger before it is settled.

What holds: no message is lost; a task or a machine that dies has its messages come again, at most
`flush` of each subscription a task; every settled delivery has one row in the ledger, and one
that was handled and not settled may have one too, with an earlier attempt.
"""

from __future__ import annotations

from .plan import SparkRunOptions
from .running import run_on_spark
from .summary import Counts, Ended, SliceSummary, SparkRun, TaskEnd, TaskSummary

__all__ = [
    "Counts",
    "Ended",
    "SliceSummary",
    "SparkRun",
    "SparkRunOptions",
    "TaskEnd",
    "TaskSummary",
    "run_on_spark",
]
