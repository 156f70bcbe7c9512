"""Spark cluster: runs a slice as one Spark job beside the event loop, and can cancel it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from functools import partial
from typing import Any

from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark import inheritable_thread_target

from ...message import new_id
from .plan import SliceFailed, TaskPlan
from .summary import TaskSummary
from .task import run_task

_MISSING = "No module named 'pump'"
_DIED = "Python worker exited unexpectedly"
_RAISED = re.compile(r"(?!org\.|java|at )[\w.]*(Error|Exception|Exit|Interrupt)(: .*)?")
"""The last line of a traceback."""


class SparkCluster:
    """The cluster behind a Spark session. Made where the session's settings are those to use:
    jobs inherit that thread's, such as its scheduler pool.
    """

    def __init__(self, spark: Any) -> None:
        self._context = spark.sparkContext
        master = str(self._context.master)
        self._is_one_machine = master == "local" or master.startswith("local[")
        self._inheriting = inheritable_thread_target(spark)(self._collect)

    @property
    def is_one_machine(self) -> bool:
        return self._is_one_machine

    async def slots(self) -> int:
        return int(await asyncio.to_thread(lambda: self._context.defaultParallelism))

    async def run(self, plan: TaskPlan, tasks: int) -> list[TaskSummary]:
        group = f"pumphouse-{new_id()}"
        job = asyncio.ensure_future(asyncio.to_thread(self._inheriting, plan, tasks, group))
        try:
            return await asyncio.shield(job)
        except asyncio.CancelledError:
            await asyncio.to_thread(self._context.cancelJobGroup, group)
            # That it was cancelled is no news.
            await asyncio.gather(job, return_exceptions=True)
            raise

    def _collect(self, plan: TaskPlan, tasks: int, group: str) -> list[TaskSummary]:
        self._context.setJobGroup(group, f"pump slice of {tasks} tasks")
        numbers = self._context.parallelize(range(tasks), tasks)
        try:
            found: list[TaskSummary] = numbers.mapPartitions(partial(run_task, plan)).collect()
        except Exception as error:  # broad: Py4J, the JVM and the network have errors of their own
            raise SliceFailed(_cause(error)) from None
        return found


def _cause(error: BaseException) -> str:
    """The line of Spark's stack trace that says what happened."""
    try:
        # Py4J asks the JVM for it.
        text = str(error)
    except (OSError, Py4JError):
        text = ""
    if not text or isinstance(error, OSError | Py4JNetworkError):
        return "the driver's JVM has ended; if its memory was short, --conf spark.driver.memory=2g"
    if _DIED in text:
        return (
            "a task's Python process died, as often as tasks are tried: a handler ended or "
            "crashed it, or memory was short"
        )
    if _MISSING in text:
        return "the workers' Python has no pumphouse; install it there, in the same version"
    lines = [line.strip(" :\t") for line in text.splitlines() if line.strip()]
    causes = [line for line in lines if "aborted due to" in line or "JOB_CANCELLED" in line]
    chosen = [*causes[:1], *_raised(lines)] or lines[:1] or [type(error).__name__]
    return " … ".join(chosen)


def _raised(lines: Sequence[str]) -> list[str]:
    """What Python raised at last, if that is told."""
    raised = [line for line in lines if _RAISED.fullmatch(line)]
    if raised and raised[-1].startswith(("SystemExit", "KeyboardInterrupt")):
        return [f"a handler ended the task that it ran in ({raised[-1]})"]
    return raised[-1:]
