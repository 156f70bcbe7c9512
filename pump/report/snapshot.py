"""Snapshot: the dead letters of some queues as a table, each left where it is."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from math import isfinite
from pathlib import Path
from typing import Any

from .. import headers
from ..clock import SYSTEM_CLOCK, Clock
from ..errors import Throttled
from ..message import Message
from ..observability import vocabulary
from ..observability.log import get_logger
from ..ports import Gateway
from ..queue_browser import browse
from .fingerprint import fingerprint_of
from .tables import SNAPSHOT

_log = get_logger("pump.report")
_ROWS_AT_ONCE = 5_000
_MAX_DETAIL = 4_096
_FURTHEST_S = 253_402_300_799
"""The end of the year 9999."""
Progress = Callable[[str, int], None]


async def take_snapshot(
    gateway: Gateway,
    queues: Sequence[str],
    path: Path,
    *,
    progress: Progress = lambda queue, count: None,
    clock: Clock = SYSTEM_CLOCK,
) -> int:
    """Write what is in the queues of an open gateway to a Parquet file; return how many.

    Nothing is taken: see `pump.queue_browser`, also for what cannot be seen. `QueueNotFound` names
    a queue that is not there. Where a broker shows no more while so many are held, the rest is
    missing, and a warning says so.
    """
    from .parquet_files import TableWriter

    writer = await asyncio.to_thread(TableWriter, SNAPSHOT, path)
    try:
        for queue in queues:
            count = 0
            waiting: list[tuple[Any, ...]] = []
            async with browse(gateway, queue, clock=clock) as batches:
                try:
                    async for batch in batches:
                        now_us = round(clock.time_s() * 1e6)
                        waiting += [row_of(each.message, queue, now_us) for each in batch]
                        count += len(batch)
                        progress(queue, count)
                        if len(waiting) >= _ROWS_AT_ONCE:
                            await asyncio.to_thread(writer.write, waiting)
                            waiting = []
                except Throttled as error:
                    # SQS shows no more while 120,000 are in flight.
                    if not count:
                        raise
                    _log.warning(
                        vocabulary.RECEIVE_FAILED, queue=queue, count=count, error=str(error)
                    )
            await asyncio.to_thread(writer.write, waiting)
    finally:
        await asyncio.to_thread(writer.close)
    return writer.row_count


def row_of(message: Message, queue: str, seen_us: int) -> tuple[Any, ...]:
    """A row of `SNAPSHOT`. Any program may write the headers: what makes no sense is None."""
    said = message.headers
    detail = said.get(headers.REJECTION_DETAIL) or None
    rejected_us = _moment_us(said.get(headers.REJECTION_TIMESTAMP))
    created_us = _us(message.created_at_s)
    since_us = created_us if rejected_us is None else rejected_us
    return (
        message.id,
        said.get(headers.ORIGINAL_TYPE) or message.type,
        queue,
        said.get(headers.ORIGINAL_TOPIC) or None,
        said.get(headers.REJECTION_REASON) or None,
        None if detail is None else detail[:_MAX_DETAIL],
        _number(said.get(headers.ATTEMPTS)),
        rejected_us,
        created_us,
        seen_us,
        None if since_us is None else (seen_us - since_us) / 1e6,
        len(message.body),
        None if detail is None else fingerprint_of(detail),
    )


def _moment_us(text: str | None) -> int | None:
    try:
        moment = datetime.fromisoformat(text or "")
        aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
        return _us(aware.timestamp())
    except (ValueError, OverflowError):
        return None


def _us(time_s: float | None) -> int | None:
    if time_s is None or not isfinite(time_s) or not 0 <= time_s <= _FURTHEST_S:
        return None
    return round(time_s * 1e6)


def _number(text: str | None) -> int | None:
    is_number = text is not None and text.isascii() and text.isdecimal() and len(text) < 10
    return int(text) if is_number and text is not None else None
