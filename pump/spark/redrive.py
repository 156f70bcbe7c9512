"""Redrive on Spark: the selection by Spark SQL, the sending by tasks of one job.

Every task is a consumer of the dead-letter queue, with a record of its own in the run's folder,
which all machines must see. The snapshot is the driver's: many that look at one queue at once
would hand the same messages to each other.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import attrs
from pyspark.errors import PySparkException
from pyspark.sql import functions
from pyspark.sql.types import LongType, MapType, StringType, StructField, StructType, TimestampType

from ..clock import SYSTEM_CLOCK, Clock
from ..errors import ConfigurationError, PumpError
from ..gateway_url import gateway_from_url
from ..message import new_id
from ..redrive.folder import RecordedProgress, RedriveCounts, RedriveFolder
from ..redrive.moving import RedriveMover, Task
from ..redrive.rows import COLUMNS, SHOWN, DeadLetterKind, LedgerRows, sync, written
from ..redrive.selection import entries_in, unfit
from ..stores.ledger.parquet_ledger import ParquetLedger

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


async def run_redrive_tasks(
    spark: Any,
    redrive_task: RedriveTask,
    tasks: int,
    *,
    stopping: asyncio.Event,
    on_moved: Callable[[RedriveCounts], None] = lambda counts: None,
    clock: Clock = SYSTEM_CLOCK,
) -> RedriveTaskResult:
    """Run the tasks to their end, or to the end of their batches when told to stop.

    Each has its share of the rate. Cancelled, it kills them. `JobFailed` when Spark gave up.
    """
    folder = RedriveFolder(redrive_task.task.folder)
    await asyncio.to_thread(folder.stop.unlink, missing_ok=True)
    watching = asyncio.create_task(
        _watch_progress(folder, stopping, on_moved, clock), name="progress"
    )
    group = f"pumphouse-{new_id()}"
    try:
        job = asyncio.ensure_future(
            asyncio.to_thread(_collect, spark, _shared(redrive_task, tasks), tasks, group)
        )
        try:
            return sum(await asyncio.shield(job), RedriveTaskResult())
        except asyncio.CancelledError:
            await asyncio.to_thread(spark.sparkContext.cancelJobGroup, group)
            await asyncio.wait([job])
            raise
    finally:
        watching.cancel()
        await asyncio.wait([watching])


def _shared(redrive_task: RedriveTask, tasks: int) -> RedriveTask:
    rate = redrive_task.task.rate
    share = None if rate is None else rate / tasks
    return attrs.evolve(redrive_task, task=attrs.evolve(redrive_task.task, rate=share))


def _collect(
    spark: Any, redrive_task: RedriveTask, tasks: int, group: str
) -> list[RedriveTaskResult]:
    context = spark.sparkContext
    context.setJobGroup(group, f"pump redrive in {tasks} tasks")
    numbers = context.parallelize(range(tasks), tasks)
    try:
        ends: list[RedriveTaskResult] = numbers.mapPartitions(
            partial(run_redrive_task, redrive_task)
        ).collect()
    except Exception as error:  # broad: Py4J, the JVM and the network have errors of their own
        raise JobFailed(_cause(error)) from None
    return ends


async def _watch_progress(
    folder: RedriveFolder,
    stopping: asyncio.Event,
    on_moved: Callable[[RedriveCounts], None],
    clock: Clock,
) -> None:
    """Tell what the records say, and tell the tasks to stop."""
    known = RecordedProgress()
    await asyncio.to_thread(known.read, folder.path)
    before = len(known.removed) + len(known.refused)
    while True:
        await clock.sleep(_LOOK_S)
        if stopping.is_set():
            await asyncio.to_thread(folder.stop.touch)
        await asyncio.to_thread(known.read, folder.path)
        on_moved(RedriveCounts(removed=len(known.removed) + len(known.refused) - before))


def _cause(error: BaseException) -> str:
    """The line of Spark's stack trace that says what happened."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    telling = [line for line in lines if "aborted due to" in line or "cancelled" in line.lower()]
    return (telling or lines or [type(error).__name__])[0][:300]


# Selecting with Spark SQL, for a redrive on Spark.

_TYPES = {
    DeadLetterKind.TEXT: StringType(),
    DeadLetterKind.INTEGER: LongType(),
    DeadLetterKind.TIME: TimestampType(),
    DeadLetterKind.MAP: MapType(StringType(), StringType()),
}
_SQL_ON_FILES = "spark.sql.runSQLOnFiles"
_CALLS_JAVA = re.compile(r"\b(reflect|java_method|try_reflect)\(", re.IGNORECASE)
_SCHEMA = StructType([StructField(each.name, _TYPES[each.kind]) for each in COLUMNS])


class SparkSelector:
    """Runs a predicate over a snapshot that all executors see."""

    def __init__(self, spark: Any) -> None:
        self._spark = spark

    def interrupt(self) -> None:
        self._spark.sparkContext.cancelAllJobs()

    def check(self, where: str) -> None:
        empty = self._spark.createDataFrame([], _SCHEMA)
        with _explained(where), self._confined():
            condition = functions.expr(f"({where}\n)")
            kind = empty.select(condition).schema[0].dataType.simpleString()
            if kind != "boolean":
                said = f"this is no condition, but of type {kind}"
                raise ConfigurationError("--where", where, unfit(where, said))
            # What may be asked for may not be a condition, such as an aggregate.
            plan = empty.where(condition)._jdf.queryExecution().analyzed().toString()
            if _CALLS_JAVA.search(plan):
                said = "a condition must not call methods of Java"
                raise ConfigurationError("--where", where, unfit(where, said))

    def select(self, snapshot: Path, where: str, limit: int | None, into: Path) -> None:
        temporary = into.with_name(f"_{into.name}.tmp")
        with _explained(where), self._confined():
            found = self._spark.read.schema(_SCHEMA).parquet(snapshot.absolute().as_uri())
            chosen = found.where(f"({where}\n)")
            if limit is not None:
                since = functions.coalesce("rejected_at", "created_at").asc_nulls_last()
                chosen = chosen.orderBy(since, "entry").limit(limit)
            chosen.select(*SHOWN).write.parquet(temporary.absolute().as_uri())
        with written(into):
            os.replace(temporary, into)
            sync(into.parent)

    @contextmanager
    def _confined(self) -> Iterator[None]:
        """A condition reaches no file: it may come from another user."""
        before = self._spark.conf.get(_SQL_ON_FILES)
        self._spark.conf.set(_SQL_ON_FILES, "false")
        try:
            yield
        finally:
            self._spark.conf.set(_SQL_ON_FILES, before)


@contextmanager
def _explained(where: str) -> Iterator[None]:
    """Turn Spark's errors about a predicate into ours."""
    # PySpark logs what it raises, with all of the JVM's stack.
    said_by_pyspark = logging.getLogger("SQLQueryContextLogger")
    was_disabled, said_by_pyspark.disabled = said_by_pyspark.disabled, True
    try:
        yield
    except PySparkException as error:
        said = str(error).split("SQLSTATE")[0].split("== SQL")[0].strip()
        raise ConfigurationError("--where", where, unfit(where, said)) from error
    finally:
        said_by_pyspark.disabled = was_disabled


# Redrive task: one consumer of the dead-letter queue, in a Python worker of Spark's.


@attrs.frozen(kw_only=True)
class RedriveTask:
    """What a task is told. Survives the way to another machine."""

    gateway: str = attrs.field(repr=False)
    task: Task
    ledger: ParquetLedger | None = None
    prepare: Callable[[], object] | None = None
    """Called first in the task's process, such as to set up logging."""


@attrs.frozen(kw_only=True)
class RedriveTaskResult:
    """What became of one task, or of all of them."""

    counts: RedriveCounts = RedriveCounts()
    is_full: bool = False
    """It ended because the broker gives no more while so many are held."""
    failures: tuple[Exception, ...] = ()

    def __add__(self, other: RedriveTaskResult) -> RedriveTaskResult:
        return RedriveTaskResult(
            counts=self.counts + other.counts,
            is_full=self.is_full or other.is_full,
            failures=self.failures + other.failures,
        )


def run_redrive_task(
    redrive_task: RedriveTask, partition: Iterable[int]
) -> Iterator[RedriveTaskResult]:
    """Run one task, and yield how it ended.

    Errors of ours are returned: Spark would try again in vain, and the driver says them in one
    line. What is raised is a defect, or a machine's.
    """
    if redrive_task.prepare is not None:
        redrive_task.prepare()
    for _ in partition:
        yield asyncio.run(_run(redrive_task))


async def _run(redrive_task: RedriveTask) -> RedriveTaskResult:
    folder = RedriveFolder(redrive_task.task.folder)
    if not await asyncio.to_thread(folder.path.is_dir):
        remedy = "a task's machine does not see this folder; name one that all of them share"
        unseen = ConfigurationError("--run", str(folder.path), remedy)
        return RedriveTaskResult(failures=(unseen,))
    selected, _ = await asyncio.to_thread(entries_in, folder.selection)
    gateway = gateway_from_url(redrive_task.gateway, SYSTEM_CLOCK)
    rows = LedgerRows(redrive_task.ledger, gateway.capabilities.gateway)
    stopping = asyncio.Event()
    mover = RedriveMover(gateway, redrive_task.task, selected, rows=rows, stopping=stopping)
    watching = asyncio.create_task(_watch_stop_marker(folder, stopping), name="stop marker")
    failures: tuple[Exception, ...] = ()
    try:
        await gateway.open()
        async with rows:
            await mover.run()
    except PumpError as error:
        failures = (error,)
    finally:
        watching.cancel()
        await gateway.aclose()
    return RedriveTaskResult(counts=mover.counts, is_full=mover.is_full, failures=failures)


async def _watch_stop_marker(folder: RedriveFolder, stopping: asyncio.Event) -> None:
    while not await asyncio.to_thread(folder.stop.exists):
        await SYSTEM_CLOCK.sleep(_LOOK_S)
    stopping.set()
