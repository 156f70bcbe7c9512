"""Columns: what a dead letter looks like to `--where`. Pure.

`VISIBLE` is what the command line's help and the documentation list.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

import attrs

from .. import headers
from ..message import Message
from ..survey import Seen
from .identity import key_of, with_broker_id


class Kind(StrEnum):
    """What a column holds."""

    TEXT = "text"
    INTEGER = "integer"
    TIME = "time"
    """A moment, UTC."""
    MAP = "map"
    """Text to text."""


@attrs.frozen
class Column:
    """One column of the table `dead_letters`."""

    name: str
    kind: Kind
    meaning: str


VISIBLE = (
    Column("id", Kind.TEXT, "the application's id of the message"),
    Column("type", Kind.TEXT, "its type; empty when the sender named none"),
    Column("reason", Kind.TEXT, "why it was rejected: DeliveryError, Unacceptable, or your own"),
    Column("detail", Kind.TEXT, "what the rejection says: the error, in its own words"),
    Column("attempts", Kind.INTEGER, "deliveries before it was rejected"),
    Column("rejected_at", Kind.TIME, "when it was rejected"),
    Column("original_queue", Kind.TEXT, "where it was rejected"),
    Column("created_at", Kind.TIME, "when its sender made it"),
    Column("body", Kind.TEXT, "its body, null when that is not text"),
    Column("body_bytes", Kind.INTEGER, "how long its body is"),
    Column("content_type", Kind.TEXT, "what its body is"),
    Column("correlation_id", Kind.TEXT, "what it belongs to"),
    Column("message_group", Kind.TEXT, "its ordering key"),
    Column("headers", Kind.MAP, "all its headers, as headers['name']"),
)
COLUMNS = (
    Column("key", Kind.TEXT, "how the redrive knows it again"),
    Column("entry", Kind.TEXT, "the key, and the broker's id where that is known"),
    *VISIBLE,
)
NAMES = ", ".join(each.name for each in VISIBLE)
SHOWN = ("entry", "id", "type", "reason", "detail", "rejected_at", "original_queue", "created_at")
"""What a selection keeps beside its entries, to say what it is."""


def row_of(seen: Seen) -> dict[str, Any]:
    """A dead letter as a row of `COLUMNS`."""
    message, given = seen.message, seen.message.headers
    key = key_of(message)
    return {
        "key": key,
        "entry": with_broker_id(key, seen.broker_id),
        "id": _text(message.id),
        "type": _text(message.type),
        "reason": _header(given, headers.REJECTION_REASON),
        "detail": _header(given, headers.REJECTION_DETAIL),
        "attempts": whole(given.get(headers.ATTEMPTS)),
        "rejected_at": _moment(given.get(headers.REJECTION_TIMESTAMP)),
        "original_queue": _header(given, headers.ORIGINAL_TOPIC),
        "created_at": message.created_at,
        "body": _body(message),
        "body_bytes": len(message.body),
        "content_type": _text(message.content_type),
        "correlation_id": None if message.correlation_id is None else _text(message.correlation_id),
        "message_group": None if message.group is None else _text(message.group),
        "headers": [(_text(name), _text(value)) for name, value in given.items()],
    }


def _header(given: Mapping[str, str], name: str) -> str | None:
    value = given.get(name)
    return None if value is None else _text(value)


def _text(value: str) -> str:
    # Half a surrogate pair is nothing that Parquet could hold.
    return value.encode("utf-8", "backslashreplace").decode("utf-8")


def whole(value: str | None) -> int | None:
    """A number in a header; None for what is none."""
    if value is None or not value.isascii() or not value.isdecimal() or len(value) > 9:
        return None
    return int(value)


def _moment(value: str | None) -> datetime | None:
    if value is None:
        return None
    try:
        moment = datetime.fromisoformat(value)
        return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        return None  # A foreign sender's own idea of a time.


def _body(message: Message) -> str | None:
    try:
        return message.body.decode("utf-8")
    except UnicodeDecodeError:
        return None
