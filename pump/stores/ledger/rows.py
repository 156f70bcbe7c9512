"""Rows: events as the ledger keeps them. Pure, and run in the writer's thread, off the loop."""

from __future__ import annotations

import errno
import os
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from math import isfinite
from typing import NamedTuple, Protocol

import attrs

from ...errors import StorageFailed
from ...events import Event, LeaseLostEvent, OutcomeEvent, RedrivenEvent, Status
from ..opening import translated as sqlite_translated

# The schema of the ledger: names, types and order of its columns, the same in every format.
#
# Columns are only ever added, at the end and nullable; a column that changes its meaning needs
# another `VERSION`. `docs/ledger.md` repeats the table, and a test compares the two.

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


Noted = tuple[Event, float]
"""An event and the Unix time at which it came."""
MAX_DETAIL = 4_096
"""Characters of a detail that are kept: four times what a dead letter carries."""
_MAX_INTEGER = 2**31 - 1
_DISCARDED = LedgerStatus.DISCARDED.value
_LEASE_LOST = LedgerStatus.LEASE_LOST.value
_REDRIVEN = LedgerStatus.REDRIVEN.value
_REDRIVE = "redrive"
"""The `subscription` of what no pump received."""
_STATUSES = {
    Status.PROCESSED: LedgerStatus.PROCESSED.value,
    Status.RETRYING: LedgerStatus.RETRYING.value,
    Status.DEAD_LETTERED: LedgerStatus.DEAD_LETTERED.value,
    Status.DISCARDED: LedgerStatus.DISCARDED.value,
}


@attrs.frozen(kw_only=True)
class RowMaker:
    """Turns events into rows; events that are no outcome of a message are left out."""

    gateway: str
    pump: str
    has_detail: bool = True

    def __call__(self, noted: Iterable[Noted]) -> list[Row]:
        """The rows of these events, in their order."""
        rows = []
        for event, time_s in noted:
            if isinstance(event, OutcomeEvent):
                rows.append(self._outcome(event, time_s))
            elif isinstance(event, LeaseLostEvent):
                rows.append(self._lost(event, time_s))
            elif isinstance(event, RedrivenEvent):
                rows.append(self._redriven(event, time_s))
        return rows

    def _outcome(self, event: OutcomeEvent, time_s: float) -> Row:
        created_at_s, reason, detail = event.created_at_s, event.reason, event.detail
        age_s = None if created_at_s is None else time_s - created_at_s
        return Row(
            VERSION,
            round(time_s * 1e6),
            event.message_id,
            event.message_type,
            event.queue,
            event.subscription,
            status_of(event),
            event.attempt if event.attempt <= _MAX_INTEGER else _MAX_INTEGER,
            None if reason is None else str(reason),
            # Not every event says it.
            event.error_type or None,
            detail[:MAX_DETAIL] if detail and self.has_detail else None,
            event.destination,
            # Whatever a foreign producer put into a header: an endless age means nothing.
            event.run_s if isfinite(event.run_s) else None,
            age_s if age_s is None or isfinite(age_s) else None,
            self.gateway,
            self.pump,
        )

    def _lost(self, event: LeaseLostEvent, time_s: float) -> Row:
        return Row(
            version=VERSION,
            time=round(time_s * 1e6),
            message_id=event.message_id,
            type="",
            queue=event.queue,
            subscription=event.subscription,
            status=_LEASE_LOST,
            attempts=min(event.attempt, _MAX_INTEGER),
            reason=None,
            error_type=None,
            detail=None,
            destination=None,
            run_s=None,
            age_s=None,
            gateway=self.gateway,
            pump=self.pump,
        )

    def _redriven(self, event: RedrivenEvent, time_s: float) -> Row:
        age_s = None if event.created_at_s is None else time_s - event.created_at_s
        return Row(
            version=VERSION,
            time=round(time_s * 1e6),
            message_id=event.message_id,
            type=event.message_type,
            queue=event.queue,
            subscription=_REDRIVE,
            status=_REDRIVEN,
            attempts=min(event.attempt, _MAX_INTEGER),
            reason=event.reason,
            error_type=None,
            detail=event.detail[:MAX_DETAIL] if event.detail and self.has_detail else None,
            destination=event.destination,
            run_s=None,
            age_s=age_s if age_s is None or isfinite(age_s) else None,
            gateway=self.gateway,
            pump=self.pump,
        )


def status_of(event: OutcomeEvent) -> str:
    """What the row says became of the message."""
    # Events of versions before `Status.DISCARDED` said it so.
    if event.destination is None and event.status is Status.DEAD_LETTERED:
        return _DISCARDED
    return _STATUSES[event.status]


def encodable(rows: Iterable[Row]) -> list[Row]:
    """The rows with every text such that UTF-8 can say it; asked for only when one is not."""
    return [Row._make(map(_encodable, row)) for row in rows]


def _encodable(value: object) -> object:
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode("utf-8")
    return value


# Row stores: what a ledger writes its rows to, and what may go wrong there.

_PASSING_ERRNOS = {errno.ENOSPC, errno.EDQUOT, errno.EAGAIN, errno.EINTR}
_DAMAGED_NAMES = ("SQLITE_CORRUPT", "SQLITE_NOTADB")
_PASSING_NAMES = ("SQLITE_FULL", "SQLITE_BUSY", "SQLITE_LOCKED")


class RowStore(Protocol):
    """Blocking, used by one thread at a time. Every method may raise `StorageFailed`."""

    @property
    def care_every_s(self) -> float | None:
        """How often `care` wants to be called; None for never."""

    def open(self) -> None:
        """Be ready to append; not raised for what passes, such as a full disk."""

    def append(self, rows: Sequence[Row]) -> bool:
        """Write all of these durably, or nothing; say whether `care` should come soon."""

    def care(self, now_s: float) -> None:
        """Do what is due now and then: roll, tidy, forget what is too old."""

    def close(self, now_s: float) -> None:
        """Care a last time and let go of everything, also when that fails."""


@contextmanager
def translated(path: str | os.PathLike[str]) -> Iterator[None]:
    """Turn SQLite's and the system's errors into `StorageFailed`, which says what to do."""
    with sqlite_translated(os.fspath(path)):
        try:
            yield
        except OSError as error:
            why = f"{error.strerror or error}; {_remedy(error)}"
            raise StorageFailed(os.fspath(path), why) from error


def is_passing(error: StorageFailed) -> bool:
    """Whether the cause is one that goes by itself, or once there is room again."""
    match error.__cause__:
        case sqlite3.Error() as cause:
            return getattr(cause, "sqlite_errorname", "").startswith(_PASSING_NAMES)
        case OSError() as cause:
            return cause.errno in _PASSING_ERRNOS
        case _:
            return False


def is_damaged(error: StorageFailed) -> bool:
    """Whether the file itself is spoilt, or gone: trying again cannot help."""
    cause = error.__cause__
    name = getattr(cause, "sqlite_errorname", "")
    return cause is None or name.startswith(_DAMAGED_NAMES)


def _remedy(error: OSError) -> str:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "free some disk space"
    if isinstance(error, PermissionError) or error.errno == errno.EROFS:
        return "make it writable for this user, or name another place"
    if isinstance(error, FileExistsError | NotADirectoryError):
        return "something else has that name; move it away, or name another place"
    return "check the disk and the path"
