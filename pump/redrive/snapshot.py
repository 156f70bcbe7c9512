"""Snapshot: the dead letters as they are now, in a file, and still in their queue."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

from ..clock import Clock
from ..errors import Throttled
from ..ports import Gateway
from ..survey import Seen, survey
from .arrow import SnapshotWriter
from .columns import row_of

_ROWS_AT_ONCE = 2_000


async def take_snapshot(
    gateway: Gateway,
    queue: str,
    path: Path,
    *,
    clock: Clock,
    stopping: asyncio.Event,
    on_seen: Callable[[int], None] = lambda count: None,
) -> int | None:
    """Write every dead letter that the queue shows, and return how many; None when it was stopped.

    The file is there only when it is whole. Where the provider cannot be asked, the look counts
    as a delivery of each message.
    """
    writer = await asyncio.to_thread(SnapshotWriter, path)
    rows = _Rows(writer, on_seen)
    try:
        async with survey(gateway, queue, clock=clock) as batches:
            try:
                async for batch in batches:
                    await rows.add(batch)
                    if stopping.is_set():
                        break
            except Throttled:
                # SQS shows no more while 120,000 are in flight: what was seen is worked on.
                if not rows.count:
                    raise
        await rows.flush()
    except BaseException:
        await asyncio.to_thread(writer.discard)
        raise
    await asyncio.to_thread(writer.discard if stopping.is_set() else writer.finish)
    return None if stopping.is_set() else rows.count


class _Rows:
    """Gathers rows for the writer. A message whose lease was lost meanwhile is seen again."""

    def __init__(self, writer: SnapshotWriter, on_seen: Callable[[int], None]) -> None:
        self._writer = writer
        self._on_seen = on_seen
        self._waiting: list[Seen] = []
        self._known: set[str | int] = set()
        self.count = 0

    async def add(self, batch: Sequence[Seen]) -> None:
        new = [each for each in batch if not self._is_known(each)]
        self._waiting += new
        self.count += len(new)
        self._on_seen(self.count)
        if len(self._waiting) >= _ROWS_AT_ONCE:
            await self.flush()

    async def flush(self) -> None:
        waiting, self._waiting = self._waiting, []
        if waiting:
            await asyncio.to_thread(_write, self._writer, waiting)

    def _is_known(self, seen: Seen) -> bool:
        if seen.broker_id is None:
            return False
        if seen.broker_id in self._known:
            return True
        self._known.add(seen.broker_id)
        return False


def _write(writer: SnapshotWriter, waiting: Sequence[Seen]) -> None:
    for start in range(0, len(waiting), _ROWS_AT_ONCE):
        writer.write([row_of(each) for each in waiting[start : start + _ROWS_AT_ONCE]])
