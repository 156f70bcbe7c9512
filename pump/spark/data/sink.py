"""Sink: rows become messages in a queue, in bulk."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from ...errors import ConfigurationError
from ...ids import new_id
from .options import SinkOptions
from .rows import RowIds, check_columns
from .sending import send_partition

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
        _check(schema, overwrite=overwrite)
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
        _check(schema, overwrite=overwrite)
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


def _check(schema: StructType, *, overwrite: bool) -> None:
    if overwrite:
        raise ConfigurationError(
            "mode", "overwrite", "a queue cannot be overwritten; use mode('append')"
        )
    check_columns({field.name: field.dataType.simpleString() for field in schema.fields})
