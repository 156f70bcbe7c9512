"""Source: the format "pump" of Spark's readers and writers."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import (
    BinaryType,
    IntegerType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from ...blocking import Portal
from ...clock import SYSTEM_CLOCK, Clock
from ...errors import ConfigurationError
from ...message import new_id
from ...queue_browser import browse
from .feed import Feed, Offset, segment_of
from .options import (
    SinkOptions,
    SnapshotOptions,
    StreamOptions,
    sink_options,
    snapshot_options,
    stream_options,
)
from .rows import ARROW, NAMES, Batcher, RowIds, Spotted, check_columns
from .sending import send_partition
from .spool import read_segment

# Sink: rows become messages in a queue, in bulk.

_QUERY = "sql.streaming.queryId"
_BATCH = "streaming.sql.batchId"


class TaskResult(WriterCommitMessage):
    """What a task has sent."""

    def __init__(self, row_count: int) -> None:
        self.row_count = row_count


class PumpWriter(DataSourceArrowWriter):
    """Sends the rows of a batch. Ids are made of the job, which is this write unless the option
    names it, the partition and the row.
    """

    def __init__(self, options: SinkOptions, schema: StructType, *, overwrite: bool) -> None:
        _check_sink(schema, overwrite=overwrite)
        self._options = options
        # Drawn once, on the driver: a task that is tried again makes the same ids.
        self._job = options.job or new_id()

    def write(self, iterator: Iterator[Any]) -> TaskResult:
        ids = RowIds(job=self._job, partition=_task().partitionId())
        return TaskResult(asyncio.run(send_partition(self._options, iterator, ids)))


class PumpStreamWriter(DataSourceStreamArrowWriter):
    """Sends the rows of each micro-batch. Ids are made of the query, or the job that the option
    names, the micro-batch, the partition and the row.
    """

    def __init__(self, options: SinkOptions, schema: StructType, *, overwrite: bool) -> None:
        _check_sink(schema, overwrite=overwrite)
        self._options = options

    def write(self, iterator: Iterator[Any]) -> TaskResult:
        task = _task()
        job = self._options.job or task.getLocalProperty(_QUERY)
        ids = RowIds(job=f"{job}/{task.getLocalProperty(_BATCH)}", partition=task.partitionId())
        return TaskResult(asyncio.run(send_partition(self._options, iterator, ids)))


def _task() -> Any:
    task = TaskContext.get()
    assert task is not None, "a write runs in a task"
    return task


def _check_sink(schema: StructType, *, overwrite: bool) -> None:
    if overwrite:
        raise ConfigurationError(
            "mode", "overwrite", "a queue cannot be overwritten; use mode('append')"
        )
    check_columns({field.name: field.dataType.simpleString() for field in schema.fields})


# Stream: Spark's view of a feed. It lives in a Python process beside the driver, which Spark ends
# without notice; only the spool must survive.
#
# Spark asks again a few milliseconds after an answer without data, so every question waits at the
# broker for a while.


class SegmentPartition(InputPartition):
    """One segment of a spool, for one task."""

    def __init__(self, folder: str, number: int) -> None:
        super().__init__(None)
        self.folder = folder
        self.number = number


class PumpStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads a queue as a stream: spooled, then acked; replayed from the spool."""

    def __init__(self, options: StreamOptions) -> None:
        self._options = options
        # Made where they are used: the reader itself travels to the executors.
        self._portal: Portal | None = None
        self._feed: Feed | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 Spark's name
        return dict(self._opened()[1].initial())

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 Spark's name
        return ReadMaxRows(self._options.max_per_batch)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 Spark's name
        portal, feed = self._opened()
        portal.call(feed.prepare_drain())

    def latestOffset(self, start: Offset, limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        portal, feed = self._opened()
        return dict(portal.call(feed.latest(start, self._rows(limit))))

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """Of the offsets alone: nothing is looked up, so a replay is planned as the first time."""
        if start["spool"] != end["spool"]:
            raise ConfigurationError(
                "spool", str(self._options.spool), "the checkpoint belongs to another spool"
            )
        folder = str(self._options.spool)
        numbers = range(segment_of(start) + 1, segment_of(end) + 1)
        return [SegmentPartition(folder, number) for number in numbers]

    def read(self, partition: SegmentPartition) -> Iterator[Any]:
        return read_segment(Path(partition.folder), partition.number)

    def commit(self, end: Offset) -> None:
        portal, feed = self._opened()
        portal.call(feed.commit(end))

    def stop(self) -> None:
        portal, feed = self._portal, self._feed
        self._portal = self._feed = None
        if portal is not None and feed is not None:
            portal.call(feed.aclose())
            portal.stop()

    def _rows(self, limit: ReadLimit) -> int | None:
        if isinstance(limit, ReadAllAvailable):
            return None
        return limit.max_rows if isinstance(limit, ReadMaxRows) else self._options.max_per_batch

    def _opened(self) -> tuple[Portal, Feed]:
        if self._portal is None or self._feed is None:
            portal = Portal()
            portal.start()
            feed = Feed(self._options.place.gateway(), self._options, clock=SYSTEM_CLOCK)
            try:
                portal.call(feed.open())
            except BaseException:
                portal.stop()
                raise
            self._portal, self._feed = portal, feed
        return self._portal, self._feed


# Snapshot: what is in a queue, as one partition; nothing is gone from it afterwards.


class PumpReader(DataSourceReader):
    """Reads a queue by browsing. Every action browses it anew."""

    def __init__(self, options: SnapshotOptions) -> None:
        self._options = options

    def partitions(self) -> list[InputPartition]:
        """One: two would hide messages from each other."""
        return [InputPartition(None)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Browse to the end, hand everything back, and only then give Spark the first row: how
        long it takes with them costs no lease.
        """
        with tempfile.TemporaryFile(prefix="pumphouse-snapshot-") as file:
            with pa.ipc.new_stream(file, ARROW) as sink:
                asyncio.run(_browse(self._options, sink, SYSTEM_CLOCK))
            file.seek(0)
            with pa.ipc.open_stream(file) as source:
                yield from source


async def _browse(options: SnapshotOptions, sink: Any, clock: Clock) -> None:
    gateway = options.place.gateway()
    queue = options.place.queue
    batcher = Batcher()
    try:
        await gateway.open()
        async with browse(
            gateway, queue, max_count=options.max_count, lease=options.lease, clock=clock
        ) as parts:
            async for part in parts:
                for each in part:
                    row = Spotted(message=each.message, queue=queue, attempt=each.attempt)
                    await _write(sink, batcher.add(row))
        await _write(sink, batcher.rest())
    finally:
        await gateway.aclose()


async def _write(sink: Any, batch: Any | None) -> None:
    if batch is not None:
        await asyncio.to_thread(sink.write_batch, batch)


class PumpSource(DataSource):
    """Queues as data, whatever machines Spark runs on."""

    is_one_machine: ClassVar[bool] = False

    @classmethod
    def name(cls) -> str:
        return "pump"

    def schema(self) -> StructType:
        return SCHEMA

    def reader(self, schema: StructType) -> PumpReader:
        _check(schema)
        return PumpReader(snapshot_options(self.options, is_one_machine=self.is_one_machine))

    # Spark finds out by the argument's name that this reader has partitions.
    def streamReader(self, schema: StructType) -> PumpStreamReader:  # noqa: N802 Spark's name
        _check(schema)
        return PumpStreamReader(stream_options(self.options))

    def writer(self, schema: StructType, overwrite: bool) -> PumpWriter:
        options = sink_options(self.options, is_one_machine=self.is_one_machine)
        return PumpWriter(options, schema, overwrite=overwrite)

    def streamWriter(  # noqa: N802 Spark's name
        self, schema: StructType, overwrite: bool
    ) -> PumpStreamWriter:
        options = sink_options(self.options, is_one_machine=self.is_one_machine)
        return PumpStreamWriter(options, schema, overwrite=overwrite)


class LocalPumpSource(PumpSource):
    """The same for a Spark whose workers are all on this machine."""

    is_one_machine: ClassVar[bool] = True


def _check(schema: StructType) -> None:
    if schema != SCHEMA:
        raise ConfigurationError(
            "schema",
            schema.simpleString(),
            f"the columns are given: {', '.join(NAMES)}; select from them after load()",
        )


# The columns as Spark knows them; above they stand for Arrow.

SCHEMA = StructType(
    [
        StructField("id", StringType(), nullable=False),
        StructField("type", StringType(), nullable=False),
        StructField("body", BinaryType(), nullable=False),
        StructField("content_type", StringType(), nullable=False),
        StructField("correlation_id", StringType()),
        StructField("reply_to", StringType()),
        StructField("group", StringType()),
        StructField("deduplication_id", StringType()),
        StructField("created_at", TimestampType()),
        StructField(
            "headers", MapType(StringType(), StringType(), valueContainsNull=False), nullable=False
        ),
        StructField("attempt", IntegerType()),
        StructField("queue", StringType(), nullable=False),
    ]
)
