"""Redrive on Spark: the selection by Spark SQL, the sending by tasks of one job.

Every task is a consumer of the dead-letter queue, with a record of its own in the run's folder,
which all machines must see. The snapshot is the driver's: many that look at one queue at once
would hand the same messages to each other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

import attrs

from ..clock import SYSTEM_CLOCK, Clock
from ..errors import PumpError
from ..ids import new_id
from ..redrive.counts import Counts
from ..redrive.folder import RunFolder
from ..redrive.record import Known
from .redrive_task import Errand, ErrandEnd, run_errand

_LOOK_S = 0.5
_MESSAGES_A_TASK = 1_000
"""Fewer are not worth a task."""


@attrs.frozen
class JobFailed(PumpError):
    """Spark gave the tasks up; what they did is in their records."""

    detail: str

    def __str__(self) -> str:
        return f"Spark gave the job up: {self.detail}"


def count_tasks(left: int, slots: int, asked: int | None) -> int:
    """How many tasks are worth their while."""
    if asked is not None:
        return asked
    return max(1, min(slots, -(-left // _MESSAGES_A_TASK)))


async def run_errands(
    spark: Any,
    errand: Errand,
    tasks: int,
    *,
    stopping: asyncio.Event,
    on_moved: Callable[[Counts], None] = lambda counts: None,
    clock: Clock = SYSTEM_CLOCK,
) -> ErrandEnd:
    """Run the tasks to their end, or to the end of their batches when told to stop.

    Each has its share of the rate. Cancelled, it kills them. `JobFailed` when Spark gave up.
    """
    folder = RunFolder(errand.task.folder)
    await asyncio.to_thread(folder.stop.unlink, missing_ok=True)
    watching = asyncio.create_task(_watch(folder, stopping, on_moved, clock), name="progress")
    group = f"pumphouse-{new_id()}"
    try:
        job = asyncio.ensure_future(
            asyncio.to_thread(_collect, spark, _shared(errand, tasks), tasks, group)
        )
        try:
            return sum(await asyncio.shield(job), ErrandEnd())
        except asyncio.CancelledError:
            await asyncio.to_thread(spark.sparkContext.cancelJobGroup, group)
            await asyncio.wait([job])
            raise
    finally:
        watching.cancel()
        await asyncio.wait([watching])


def _shared(errand: Errand, tasks: int) -> Errand:
    rate = errand.task.rate
    share = None if rate is None else rate / tasks
    return attrs.evolve(errand, task=attrs.evolve(errand.task, rate=share))


def _collect(spark: Any, errand: Errand, tasks: int, group: str) -> list[ErrandEnd]:
    context = spark.sparkContext
    context.setJobGroup(group, f"pump redrive in {tasks} tasks")
    numbers = context.parallelize(range(tasks), tasks)
    try:
        ends: list[ErrandEnd] = numbers.mapPartitions(partial(run_errand, errand)).collect()
    except Exception as error:  # broad: Py4J, the JVM and the network have errors of their own
        raise JobFailed(_cause(error)) from None
    return ends


async def _watch(
    folder: RunFolder, stopping: asyncio.Event, on_moved: Callable[[Counts], None], clock: Clock
) -> None:
    """Tell what the records say, and tell the tasks to stop."""
    known = Known()
    await asyncio.to_thread(known.read, folder.path)
    before = len(known.removed) + len(known.refused)
    while True:
        await clock.sleep(_LOOK_S)
        if stopping.is_set():
            await asyncio.to_thread(folder.stop.touch)
        await asyncio.to_thread(known.read, folder.path)
        on_moved(Counts(removed=len(known.removed) + len(known.refused) - before))


def _cause(error: BaseException) -> str:
    """The line of Spark's stack trace that says what happened."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    telling = [line for line in lines if "aborted due to" in line or "cancelled" in line.lower()]
    return (telling or lines or [type(error).__name__])[0][:300]
