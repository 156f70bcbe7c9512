"""Rows: every message that was redriven is a row of the ledger before it leaves its queue."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from enum import StrEnum
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import attrs
from msgspec.structs import replace

from .. import headers
from ..clock import SYSTEM_CLOCK, Clock
from ..errors import ConfigurationError, StorageFailed
from ..events import RedrivenEvent
from ..headers import ATTEMPTS, REJECTION_DETAIL, REJECTION_REASON, REJECTION_TIMESTAMP
from ..message import Delivery, Message
from ..observability import vocabulary
from ..observability.log import get_logger
from ..queue_browser import Seen
from ..stores.ledger.buffered_ledger import BufferedLedger, WriterThread, pump_name
from ..stores.ledger.rows import RowMaker, RowStore, translated

_log = get_logger("pump.redrive")


class LedgerRows:
    """`async with LedgerRows(…)`: rows for a ledger that is not open elsewhere in this process.

    Unlike the ledger itself it forgives no disk: a row is there when `write` returns. Without a
    ledger it writes nothing.
    """

    def __init__(
        self, ledger: BufferedLedger | None, gateway: str, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self._ledger = ledger
        self._gateway = gateway
        self._clock = clock
        self._store: RowStore | None = None

    async def __aenter__(self) -> Self:
        if self._ledger is None:
            return self
        self._maker = RowMaker(
            gateway=self._gateway, pump=pump_name(), has_detail=self._ledger.has_detail
        )
        self._store = self._ledger.new_store()
        self._thread = WriterThread("pump-redrive-rows")
        try:
            await self._thread.do(self._store.open)
        except BaseException:
            self._thread.end()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        store, self._store = self._store, None
        if store is None:
            return
        try:
            await self._thread.do(partial(store.close, self._clock.time_s()))
        except StorageFailed as failure:
            # The rows are durable all the same, and the next writer rolls them.
            _log.warning(vocabulary.LEDGER_UNROLLED, path=failure.path, error=str(failure))
        finally:
            self._thread.end()

    async def write(self, sent: Sequence[tuple[Delivery, float | None]], target: str) -> None:
        """Return when the rows are on the disk; `StorageFailed` when they cannot be.

        After a crash a row may be written a second time. It is the same row, of the moment that
        the record of the run has for it, so that a report can tell.
        """
        if self._store is None:
            return
        now_s = self._clock.time_s()
        rows = self._maker(
            [(event_of(each, target), now_s if at_s is None else at_s) for each, at_s in sent]
        )
        await self._thread.do(partial(self._store.append, rows))


def event_of(delivery: Delivery, target: str) -> RedrivenEvent:
    """What the ledger is told."""
    message = delivery.message
    return RedrivenEvent(
        message_id=message.id,
        queue=delivery.queue,
        destination=target,
        # Not the delivery's own: that is another one when the message comes again to be removed.
        attempt=whole(message.headers.get(ATTEMPTS)) or 1,
        message_type=message.type,
        reason=message.headers.get(REJECTION_REASON),
        detail=message.headers.get(REJECTION_DETAIL, ""),
        created_at_s=message.created_at_s,
    )


# Columns: what a dead letter looks like to `--where`. Pure.
#
# `VISIBLE` is what the command line's help and the documentation list.


class DeadLetterKind(StrEnum):
    """What a column holds."""

    TEXT = "text"
    INTEGER = "integer"
    TIME = "time"
    """A moment, UTC."""
    MAP = "map"
    """Text to text."""


@attrs.frozen
class DeadLetterColumn:
    """One column of the table `dead_letters`."""

    name: str
    kind: DeadLetterKind
    meaning: str


VISIBLE = (
    DeadLetterColumn("id", DeadLetterKind.TEXT, "the application's id of the message"),
    DeadLetterColumn("type", DeadLetterKind.TEXT, "its type; empty when the sender named none"),
    DeadLetterColumn(
        "reason",
        DeadLetterKind.TEXT,
        "why it was rejected: DeliveryError, Unacceptable, or your own",
    ),
    DeadLetterColumn(
        "detail", DeadLetterKind.TEXT, "what the rejection says: the error, in its own words"
    ),
    DeadLetterColumn("attempts", DeadLetterKind.INTEGER, "deliveries before it was rejected"),
    DeadLetterColumn("rejected_at", DeadLetterKind.TIME, "when it was rejected"),
    DeadLetterColumn("original_queue", DeadLetterKind.TEXT, "where it was rejected"),
    DeadLetterColumn("created_at", DeadLetterKind.TIME, "when its sender made it"),
    DeadLetterColumn("body", DeadLetterKind.TEXT, "its body, null when that is not text"),
    DeadLetterColumn("body_bytes", DeadLetterKind.INTEGER, "how long its body is"),
    DeadLetterColumn("content_type", DeadLetterKind.TEXT, "what its body is"),
    DeadLetterColumn("correlation_id", DeadLetterKind.TEXT, "what it belongs to"),
    DeadLetterColumn("message_group", DeadLetterKind.TEXT, "its ordering key"),
    DeadLetterColumn("headers", DeadLetterKind.MAP, "all its headers, as headers['name']"),
)
COLUMNS = (
    DeadLetterColumn("key", DeadLetterKind.TEXT, "how the redrive knows it again"),
    DeadLetterColumn(
        "entry", DeadLetterKind.TEXT, "the key, and the broker's id where that is known"
    ),
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


# Arrow: dead letters in Parquet files. Calls need pyarrow; importing this does not.

_ROWS_AT_ONCE = 65_536


def schema() -> Any:
    """The Arrow schema of `COLUMNS`."""
    pa = pyarrow()
    types = {
        DeadLetterKind.TEXT: pa.string(),
        DeadLetterKind.INTEGER: pa.int64(),
        DeadLetterKind.TIME: pa.timestamp("us", tz="UTC"),
        DeadLetterKind.MAP: pa.map_(pa.string(), pa.string()),
    }
    return pa.schema([pa.field(each.name, types[each.kind]) for each in COLUMNS])


class SnapshotWriter:
    """Writes rows into a file that is there, whole and durable, once `finish` has returned.

    Blocking. Without `finish` nothing of that name is there.
    """

    def __init__(self, path: Path) -> None:
        pyarrow()
        import pyarrow.parquet as pq

        self._path = path
        self._temporary = path.with_name(f"_{path.name}.tmp")
        self._schema = schema()
        with written(self._temporary):
            self._file = pq.ParquetWriter(self._temporary, self._schema, compression="zstd")

    def write(self, rows: Sequence[dict[str, Any]]) -> None:
        """Add rows."""
        with written(self._temporary):
            self._file.write_table(pyarrow().Table.from_pylist(list(rows), schema=self._schema))

    def finish(self) -> None:
        """Give the file its name."""
        with written(self._path):
            self._file.close()
            sync(self._temporary)
            os.replace(self._temporary, self._path)
            sync(self._path.parent)

    def discard(self) -> None:
        """Leave nothing behind."""
        with written(self._temporary):
            self._file.close()
            self._temporary.unlink(missing_ok=True)


def columns_in(path: Path, names: Sequence[str]) -> Iterator[list[dict[str, Any]]]:
    """The rows of a file, or of a folder of files, part by part, with these columns alone."""
    pyarrow()
    import pyarrow.parquet as pq

    with written(path):
        for file in files_in(path):
            with pq.ParquetFile(file) as opened:
                for batch in opened.iter_batches(batch_size=_ROWS_AT_ONCE, columns=list(names)):
                    yield batch.to_pylist()


def files_in(path: Path) -> Iterable[Path]:
    """The Parquet files that a path means; Spark makes a folder of them."""
    return sorted(path.glob("*.parquet")) if path.is_dir() else [path]


def sync(path: Path) -> None:
    """Have what a file, or a folder's list of names, holds on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def written(path: Path) -> Iterator[None]:
    """Turn the disk's and Arrow's errors into `StorageFailed`."""
    pa = pyarrow()
    with translated(path):
        try:
            yield
        except pa.ArrowException as error:
            if isinstance(error, OSError):
                raise
            raise StorageFailed(str(path), f"{error}; remove the folder of this run") from error


def pyarrow() -> Any:
    """The package; `ConfigurationError` names the extra that brings it."""
    try:
        import pyarrow
    except ImportError as error:
        raise ConfigurationError(
            "redrive", "pyarrow", f"{error}; try: pip install 'pumphouse[report]'"
        ) from error
    return pyarrow


# Identity: how a dead letter is known again, and what it is sent as. Pure.
#
# A *key* says which dead letter it is by what it holds: it is the same in the snapshot, however
# that was taken, and in every delivery. An *entry* is the key with the broker's own id: two copies
# of one dead letter have one key and are two entries, and each is sent and removed by itself. So is
# a message that was sent, failed and was moved back by a broker that wrote nothing on it: it holds
# what it held before, and only its entry is another.

KEY_LENGTH = 32


def key_of(message: Message) -> str:
    """`KEY_LENGTH` characters from its id, the time of its rejection and its body."""
    timestamp = message.headers.get(REJECTION_TIMESTAMP, "")
    return _digest(message.id, timestamp, hashlib.sha256(message.body).hexdigest())


def entry_of(delivery: Delivery) -> str:
    """The key, with the broker's id of what it stores where it has one."""
    return with_broker_id(key_of(delivery.message), delivery.broker_id)


def with_broker_id(key: str, broker_id: str | int | None) -> str:
    """The entry of a key."""
    return key if broker_id is None else f"{key}:{broker_id}"


def is_among(entry: str, selected: Container[str]) -> bool:
    """Whether it was selected: by its entry, or its key where the snapshot saw no broker's id."""
    return entry in selected or entry[:KEY_LENGTH] in selected


def redriven(delivery: Delivery, target: str) -> Message:
    """The message that is sent: the dead letter as it is, with a de-duplication id of its own.

    The id is the same however often this dead letter is sent to this target, and another one
    after the message has become a dead letter again: a target would take it, and drop it.
    """
    return replace(
        delivery.message, deduplication_id=_digest("redrive", entry_of(delivery), target)
    )


def _digest(*parts: str) -> str:
    source = "\0".join(parts).encode("utf-8", "surrogatepass")
    return hashlib.sha256(source).hexdigest()[:KEY_LENGTH]
