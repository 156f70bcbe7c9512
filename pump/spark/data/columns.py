"""Columns: a message as a row, and a row as a message. Pure.

Every message has a row. What a column cannot say is said as near to it as possible: half a
surrogate pair as its escape, a time that no calendar has as null.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from math import isfinite
from typing import Any

import attrs
import pyarrow as pa

from ...message import Message

_TEXT_MAP = pa.map_(pa.string(), pa.field("value", pa.string(), nullable=False))
ARROW = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        pa.field("type", pa.string(), nullable=False),
        pa.field("body", pa.binary(), nullable=False),
        pa.field("content_type", pa.string(), nullable=False),
        pa.field("correlation_id", pa.string()),
        pa.field("reply_to", pa.string()),
        pa.field("group", pa.string()),
        pa.field("deduplication_id", pa.string()),
        pa.field("created_at", pa.timestamp("us", tz="UTC")),
        pa.field("headers", _TEXT_MAP, nullable=False),
        pa.field("attempt", pa.int32()),
        pa.field("queue", pa.string(), nullable=False),
    ]
)
NAMES: tuple[str, ...] = tuple(ARROW.names)

_MAX_BATCH_BYTES = 16 * 1024 * 1024
_MAX_BATCH_ROWS = 10_000
_MAX_ATTEMPT = 2**31 - 1
# A day within what Python's calendar has: whoever shows a time may move it to another zone.
_FIRST_S = datetime(1, 1, 2, tzinfo=UTC).timestamp()
_LAST_S = datetime(9999, 12, 30, tzinfo=UTC).timestamp()


@attrs.frozen(kw_only=True)
class Spotted:
    """A message with what its row says beside it."""

    message: Message
    queue: str
    attempt: int | None


class Batcher:
    """Makes record batches of bounded size out of what it is given, in order."""

    def __init__(self) -> None:
        self._part: list[Spotted] = []
        self._size = 0

    def add(self, each: Spotted) -> Any | None:
        """Take one more; return a batch of those before it when they are enough."""
        size = _size(each)
        is_full = len(self._part) == _MAX_BATCH_ROWS or self._size + size > _MAX_BATCH_BYTES
        done = self.rest() if is_full else None
        self._part.append(each)
        self._size += size
        return done

    def rest(self) -> Any | None:
        """A batch of what was taken since the last one; None for nothing."""
        part, self._part, self._size = self._part, [], 0
        return record_batch(part) if part else None


def batches(spotted: Iterable[Spotted]) -> Iterator[Any]:
    """Record batches of bounded size, with a row for each, in their order."""
    batcher = Batcher()
    for each in spotted:
        if (batch := batcher.add(each)) is not None:
            yield batch
    if (batch := batcher.rest()) is not None:
        yield batch


def record_batch(spotted: Sequence[Spotted]) -> Any:
    """One record batch with a row for each."""
    messages = [each.message for each in spotted]
    columns: list[Sequence[object]] = [
        [text(each.id) for each in messages],
        [text(each.type) for each in messages],
        [each.body for each in messages],
        [text(each.content_type) for each in messages],
        [_optional(each.correlation_id) for each in messages],
        [_optional(each.reply_to) for each in messages],
        [_optional(each.group) for each in messages],
        [_optional(each.deduplication_id) for each in messages],
        [time_us(each.created_at_s) for each in messages],
        [_pairs(each.headers) for each in messages],
        [None if each.attempt is None else min(each.attempt, _MAX_ATTEMPT) for each in spotted],
        [text(each.queue) for each in spotted],
    ]
    arrays = [
        pa.array(values, type=field.type) for values, field in zip(columns, ARROW, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=ARROW)


def text(value: str) -> str:
    """The text, with what UTF-8 cannot say as an escape."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return value.encode("utf-8", "backslashreplace").decode()
    return value


def time_us(time_s: float | None) -> int | None:
    """Microseconds since 1970; None for a time that no calendar has."""
    if time_s is None or not isfinite(time_s) or not _FIRST_S <= time_s <= _LAST_S:
        return None
    return round(time_s * 1_000_000)


def _optional(value: str | None) -> str | None:
    return None if value is None else text(value)


def _pairs(headers: Mapping[str, str]) -> list[tuple[str, str]]:
    # Two names that differ in what UTF-8 cannot say could become one: the map keeps the last.
    return list({text(name): text(value) for name, value in headers.items()}.items())


def _size(each: Spotted) -> int:
    headers = each.message.headers
    return len(each.message.body) + sum(len(name) + len(headers[name]) for name in headers)
