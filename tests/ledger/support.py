"""What the tests of the ledger share: events, and rows read by other means than our own."""

from __future__ import annotations

import os
import resource
import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pyarrow.parquet as pq

from pump.clock import Clock
from pump.events import OutcomeEvent, Status
from pump.stores.ledger.buffered_ledger import BufferedLedger
from pump.stores.ledger.parquet_ledger import journals_in, waiting_rows
from pump.stores.ledger.rows import COLUMNS, VERSION, Row


def an_outcome(number: int = 0, **fields: Any) -> OutcomeEvent:
    """A processed message, known by its number."""
    given = {
        "message_id": f"m-{number}",
        "status": Status.PROCESSED,
        "attempt": 1,
        "queue": "orders",
        "subscription": "orders",
        "message_type": "PlaceOrder",
        "run_s": 0.25,
        **fields,
    }
    return OutcomeEvent(**given)


def a_row(**fields: Any) -> Row:
    """A row of which a test names only what it is about."""
    given = {
        "version": VERSION,
        "time": 1_750_000_000_000_000,
        "message_id": "m",
        "type": "PlaceOrder",
        "queue": "orders",
        "subscription": "orders",
        "status": "processed",
        "attempts": 1,
        "reason": None,
        "error_type": None,
        "detail": None,
        "destination": None,
        "run_s": 0.25,
        "age_s": 1.0,
        "gateway": "memory",
        "pump": "host:1:a",
        **fields,
    }
    return Row(**given)


async def write(ledger: BufferedLedger, clock: Clock, *events: OutcomeEvent) -> None:
    """Open, record, close."""
    await ledger.open("memory", clock)
    for event in events:
        ledger.record(event)
    await ledger.aclose()


def sqlite_rows(path: Path) -> list[Row]:
    """What a SQLite ledger holds, in the order of time."""
    with closing(sqlite3.connect(path)) as connection:
        return [
            Row._make(each) for each in connection.execute("SELECT * FROM outcomes ORDER BY time")
        ]


def postgres_rows(url: str) -> list[Row]:
    """What a ledger in PostgreSQL holds, in the order of time."""
    server, _, schema = url.partition("?schema=")
    with psycopg.connect(server) as connection:
        asked = f'SELECT * FROM "{schema}".outcomes ORDER BY time'.encode()
        return [Row._make(each) for each in connection.execute(asked)]


def parquet_files(folder: Path) -> list[Path]:
    """Every file that a reader of such folders would see."""
    return sorted(folder.glob("day=*/*.parquet"))


def parquet_rows(folder: Path) -> list[Row]:
    """What the files hold; fails when one cannot be read."""
    rows = []
    for path in parquet_files(folder):
        table = pq.ParquetFile(path).read()
        at = table.schema.get_field_index("time")
        table = table.set_column(at, "time", table["time"].cast(pa.int64()))
        assert table.column_names == [each.name for each in COLUMNS]
        rows += [Row(**each) for each in table.to_pylist()]
    return rows


def journal_rows(folder: Path) -> list[Row]:
    """What waits in the journals, rolled already or not."""
    # Our own code reads them, and that may not block a loop.
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(_journal_rows, folder).result()


def _journal_rows(folder: Path) -> list[Row]:
    rows: list[Row] = []
    for path in journals_in(folder):
        with waiting_rows(path) as batches:
            for _, some in batches:
                rows += some
    return rows


def ids(rows: list[Row]) -> list[str]:
    """Whose outcomes these are."""
    return [row.message_id for row in rows]


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """Let writes beyond this size fail, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@contextmanager
def read_only(folder: Path) -> Iterator[None]:
    """Root may write everything, so it takes another user's place for a moment."""
    folder.chmod(0o555)
    is_root = os.geteuid() == 0
    if is_root:
        os.seteuid(65_534)
    try:
        yield
    finally:
        if is_root:
            os.seteuid(0)
        folder.chmod(0o755)
