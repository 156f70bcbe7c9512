"""Rows: what a row must be like to become a message, and the message it becomes. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any

import attrs
import pyarrow as pa

from ...errors import ConfigurationError
from ...message import JSON, Message
from .columns import NAMES

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
    """Ids that a row has whoever writes it, and however often: of job, partition and number."""

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
