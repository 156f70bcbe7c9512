"""Rows: what a row must be like to become a message, and the message it becomes. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from hashlib import sha256
from math import isfinite
from typing import Any

import attrs
import pyarrow as pa

from ...errors import ConfigurationError
from ...message import JSON, Message

_TEXT = ("string",)
_KINDS = {
    "id": _TEXT,
    "type": _TEXT,
    "body": ("binary", "string"),
    "content_type": _TEXT,
    "correlation_id": _TEXT,
    "reply_to": _TEXT,
    "group": _TEXT,
    "deduplication_id": _TEXT,
    "created_at": ("timestamp", "timestamp_ntz"),
    "headers": ("map<string,string>",),
}
_UNUSED = ("attempt", "queue")
"""What a reader says of a delivery: taken, so that what was read can be written, but not sent."""


@attrs.frozen(kw_only=True)
class RowIds:
    """Ids that a row has however often it is written, and where: of job, partition and number."""

    job: str
    partition: int

    def of(self, row: int) -> str:
        """32 hexadecimal digits."""
        return sha256(f"{self.job}\0{self.partition}\0{row}".encode()).hexdigest()[:32]


def check_columns(kinds: Mapping[str, str]) -> None:
    """Check columns, by name and Spark's word for their type; `ConfigurationError` names the one
    that is missing, unknown or of another type.
    """
    for name, kind in kinds.items():
        if name not in NAMES:
            remedy = f"no such column; a row may have {_allowed()}. Select or rename them first"
            raise ConfigurationError(f"column {name!r}", kind, remedy)
        if name not in _UNUSED and kind not in _KINDS[name]:
            raise ConfigurationError(
                f"column {name!r}", kind, f"cast it to {' or '.join(_KINDS[name])}"
            )
    if "body" not in kinds:
        raise ConfigurationError(
            "column 'body'", None, f"every row needs one; a row may have {_allowed()}"
        )


def messages_of(
    batch: Any, ids: RowIds, *, first_row: int, now_s: float, deduplicates: bool
) -> list[Message]:
    """The messages of a record batch whose columns were checked, in order.

    `ConfigurationError` names the row, counted from `first_row`, and the column that no message
    can have.
    """
    columns = _Columns(batch, ids.partition, first_row)
    made = [ids.of(first_row + at) for at in range(batch.num_rows)]
    spare = made if deduplicates else [None] * len(made)
    fields: dict[str, Sequence[object]] = {
        "id": _or(columns.values("id"), made),
        "body": columns.bodies(),
        "type": _or(columns.values("type"), [""] * len(made)),
        "content_type": _or(columns.values("content_type"), [JSON] * len(made)),
        "correlation_id": columns.values("correlation_id"),
        "reply_to": columns.values("reply_to"),
        "group": columns.values("group"),
        "deduplication_id": _or(columns.values("deduplication_id"), spare),
        "created_at_s": columns.times_s(now_s),
        "headers": columns.headers(),
    }
    return [
        Message(**dict(zip(fields, row, strict=True))) for row in zip(*fields.values(), strict=True)
    ]


def _or(values: Sequence[Any], others: Sequence[Any]) -> list[Any]:
    """Each value, or the other one where it is null or empty."""
    return [value or other for value, other in zip(values, others, strict=True)]


class _Columns:
    """A record batch by column; one that is absent is as one without values."""

    def __init__(self, batch: Any, partition: int, first_row: int) -> None:
        self._batch = batch
        self._partition = partition
        self._first_row = first_row

    def bodies(self) -> list[bytes]:
        bodies = []
        for at, body in enumerate(self.values("body")):
            if body is None:
                raise self._bad("body", at, "it is null; an empty body is an empty string")
            bodies.append(body.encode() if isinstance(body, str) else body)
        return bodies

    def times_s(self, now_s: float) -> Sequence[float | None]:
        """`now_s` where there is no such column; a time without a zone is UTC."""
        position = self._batch.schema.get_field_index("created_at")
        if position < 0:
            return [now_s] * int(self._batch.num_rows)
        column = self._batch.column(position)
        times_us = column.cast(pa.timestamp("us", tz=column.type.tz)).cast(pa.int64()).to_pylist()
        return [None if each is None else each / 1_000_000 for each in times_us]

    def headers(self) -> list[dict[str, str]]:
        maps = []
        for at, pairs in enumerate(self.values("headers")):
            headers = dict(pairs or ())
            for name, value in headers.items():
                if value is None:
                    raise self._bad("headers", at, f"header {name!r} is null; leave it out")
            maps.append(headers)
        return maps

    def values(self, name: str) -> list[Any]:
        position = self._batch.schema.get_field_index(name)
        if position < 0:
            return [None] * int(self._batch.num_rows)
        values: list[Any] = self._batch.column(position).to_pylist()
        return values

    def _bad(self, column: str, at: int, remedy: str) -> ConfigurationError:
        row = f"row {self._first_row + at} of partition {self._partition}"
        return ConfigurationError(f"column {column!r}", row, remedy)


def _allowed() -> str:
    return ", ".join(NAMES)


# Columns: a message as a row, and a row as a message. Pure.
#
# Every message has a row. What a column cannot say is said as near to it as possible: half a
# surrogate pair as its escape, a time that no calendar has as null.

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
# A day within what Python's calendar has: a reader may move a time to another zone.
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
