"""Opening a SQLite file that other processes may be opening too, and naming what went wrong."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

import aiosqlite

from ..backoff import RECONNECT
from ..clock import SYSTEM_CLOCK
from ..errors import StorageFailed
from ..tasks import in_thread

BUSY_S = 5.0
"""How long a write waits for another process's."""
_MAX_ATTEMPTS = 7

_REMEDIES = {
    "SQLITE_NOTADB": "is no SQLite database; restore it from a copy, or move it away to start anew",
    "SQLITE_CORRUPT": "is damaged; restore it from a copy, or move it away to start anew",
    "SQLITE_CANTOPEN": "cannot be opened; its folder must exist and be writable",
    "SQLITE_READONLY": "cannot be written; check its permissions",
    "SQLITE_FULL": "cannot grow; the disk is full",
    "SQLITE_BUSY": f"was locked by another writer for more than {BUSY_S:g} s",
}


@contextmanager
def translated(path: str) -> Iterator[None]:
    """Turn SQLite's errors into `StorageFailed`, which says what to do."""
    try:
        yield
    except sqlite3.Error as error:
        # The extended codes (SQLITE_BUSY_SNAPSHOT …) start with the plain ones.
        name = "_".join(getattr(error, "sqlite_errorname", "").split("_")[:2])
        remedy = _REMEDIES.get(name)
        raise StorageFailed(path, f"{remedy} ({error})" if remedy else str(error)) from error


async def open_database(
    path: str, *, synchronous: Literal["NORMAL", "FULL"]
) -> aiosqlite.Connection:
    """Return a connection in WAL mode and in autocommit; transactions are begun explicitly."""
    connection = aiosqlite.connect(path, isolation_level=None, timeout=BUSY_S)
    worker = let_process_end(connection)
    with translated(path):
        try:
            await connection
        except BaseException:
            # Its worker still wants to tell this loop that it has ended.
            await in_thread(worker.join)
            raise
        try:
            await _enter_wal(connection)
            await connection.execute(f"PRAGMA synchronous={synchronous}")
        except BaseException:
            await connection.close()
            raise
    return connection


def let_process_end(connection: aiosqlite.Connection) -> Any:
    """Have a connection that is not yet open, and may never be closed, not keep its process from
    ending: an event loop that is broken off closes nothing. Returns its thread.
    """
    # Before aiosqlite 0.22 that was the connection itself.
    worker: Any = getattr(connection, "_thread", connection)
    worker.daemon = True
    return worker


async def _enter_wal(connection: aiosqlite.Connection) -> None:
    # The change to WAL does not wait for the busy timeout: two first openers collide at once.
    for attempt in range(1, _MAX_ATTEMPTS):
        try:
            # Fetched at once: a statement with a row left to read keeps the file locked.
            await connection.execute_fetchall("PRAGMA journal_mode=WAL")
            return
        except sqlite3.OperationalError as error:
            if attempt == _MAX_ATTEMPTS - 1 or "locked" not in str(error):
                raise
        await SYSTEM_CLOCK.sleep(RECONNECT.delay_s(attempt, SYSTEM_CLOCK.chance()))
