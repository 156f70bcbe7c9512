"""Stream: Spark's view of a feed. It lives in a Python process beside the driver, which Spark ends
without notice; only the spool must survive.

Spark asks again a few milliseconds after an answer without data, so every question waits at the
broker for a while.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from ...blocking import Portal
from ...clock import SYSTEM_CLOCK
from ...errors import ConfigurationError
from .feed import Feed, Offset, segment_of
from .options import StreamOptions
from .spool import read_segment


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
