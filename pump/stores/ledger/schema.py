"""The schema of the ledger: names, types and order of its columns, the same in every format.

Columns are only ever added, at the end and nullable; a column that changes its meaning needs
another `VERSION`. `docs/ledger.md` repeats the table, and a test compares the two.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

VERSION = 1
"""What `version` says in every row."""


class LedgerStatus(StrEnum):
    """What became of a delivery: `pump.events.Status`, and more where a row must tell."""

    PROCESSED = "processed"
    RETRYING = "retrying"
    DEAD_LETTERED = "dead-lettered"
    DISCARDED = "discarded"
    """Rejected, and no queue took it: the message is gone."""
    LEASE_LOST = "lease-lost"
    """The broker owns it again; it will be delivered again, and may have been handled."""
    REDRIVEN = "redriven"
    """A dead letter that was sent to `destination` again."""


class ColumnKind(StrEnum):
    """What a column holds."""

    INTEGER = "integer"
    """Signed, 32 bits."""
    REAL = "real"
    """64 bits."""
    TEXT = "text"
    """UTF-8. What UTF-8 cannot say (half a surrogate pair) is written as an escape."""
    TIME = "time"
    """Microseconds since 1970, UTC."""


class Column(NamedTuple):
    """One column; `is_repetitive` marks few different values, `meaning` is for the reader."""

    name: str
    kind: ColumnKind
    meaning: str
    is_nullable: bool = False
    is_repetitive: bool = False


class Row(NamedTuple):
    """One outcome. The fields are the columns, in their order."""

    version: int
    time: int
    message_id: str
    type: str
    queue: str
    subscription: str
    status: str
    attempts: int
    reason: str | None
    error_type: str | None
    detail: str | None
    destination: str | None
    run_s: float | None
    age_s: float | None
    gateway: str
    pump: str


COLUMNS = (
    Column("version", ColumnKind.INTEGER, "version of this schema: 1", is_repetitive=True),
    Column("time", ColumnKind.TIME, "when the outcome was known: the broker had confirmed it"),
    Column("message_id", ColumnKind.TEXT, "the application's id of the message"),
    Column(
        "type", ColumnKind.TEXT, "its type; empty when the sender named none", is_repetitive=True
    ),
    Column("queue", ColumnKind.TEXT, "where it was received", is_repetitive=True),
    Column("subscription", ColumnKind.TEXT, "whose pump received it", is_repetitive=True),
    Column(
        "status",
        ColumnKind.TEXT,
        "`processed`, `retrying`, `dead-lettered`, `discarded`, `lease-lost` or `redriven`",
        is_repetitive=True,
    ),
    Column("attempts", ColumnKind.INTEGER, "deliveries so far, this one included"),
    Column(
        "reason",
        ColumnKind.TEXT,
        "why it was rejected: `DeliveryError` or `Unacceptable`",
        is_nullable=True,
        is_repetitive=True,
    ),
    Column(
        "error_type",
        ColumnKind.TEXT,
        "class of what the handling raised; null when nothing was raised, and for lost leases",
        is_nullable=True,
        is_repetitive=True,
    ),
    Column(
        "detail",
        ColumnKind.TEXT,
        "what the dead letter says, or the error; may quote the body",
        is_nullable=True,
    ),
    Column(
        "destination",
        ColumnKind.TEXT,
        "the queue it was routed to, by way of the spill if need be",
        is_nullable=True,
        is_repetitive=True,
    ),
    Column("run_s", ColumnKind.REAL, "seconds its handlers ran", is_nullable=True),
    Column(
        "age_s",
        ColumnKind.REAL,
        "seconds from its making to `time`; below zero when the sender's clock is ahead",
        is_nullable=True,
    ),
    Column("gateway", ColumnKind.TEXT, "kind of broker, such as `sqs`", is_repetitive=True),
    Column(
        "pump",
        ColumnKind.TEXT,
        "`host:pid:instance`, another one for every start",
        is_repetitive=True,
    ),
)
