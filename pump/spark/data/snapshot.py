"""Snapshot: what is in a queue, as one partition; nothing is gone from it afterwards."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from ...clock import SYSTEM_CLOCK, Clock
from ...survey import survey
from .columns import ARROW, Batcher, Spotted
from .options import SnapshotOptions


class PumpReader(DataSourceReader):
    """Reads a queue by a survey. Every action surveys it anew."""

    def __init__(self, options: SnapshotOptions) -> None:
        self._options = options

    def partitions(self) -> list[InputPartition]:
        """One: two would hide messages from each other."""
        return [InputPartition(None)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Survey to the end, hand everything back, and only then give Spark the first row: how
        long it takes with them is nobody's lease.
        """
        with tempfile.TemporaryFile(prefix="pumphouse-snapshot-") as file:
            with pa.ipc.new_stream(file, ARROW) as sink:
                asyncio.run(_survey(self._options, sink, SYSTEM_CLOCK))
            file.seek(0)
            with pa.ipc.open_stream(file) as source:
                yield from source


async def _survey(options: SnapshotOptions, sink: Any, clock: Clock) -> None:
    gateway = options.place.gateway()
    queue = options.place.queue
    batcher = Batcher()
    try:
        await gateway.open()
        async with survey(
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
