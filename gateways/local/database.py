"""The database file: made whole or not at all, recognised by its header, one writer.

Tables: `queues` (settings), `messages` (one row each, in sequence order), `leases` (one row a
receive, its members packed), `seen` (de-duplication ids), `replies` (remote requests that must
not be carried out twice). Times are Unix times: they outlive the process.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable, Sequence
from itertools import chain
from pathlib import Path
from struct import unpack_from
from typing import Any

import aiosqlite
import attrs

from pump.errors import StorageFailed

from .errors import translate

APPLICATION_ID = 0x50554D50  # "PUMP"
SCHEMA_VERSION = 1
PAGE_BYTES = 4096

_SCHEMA = """
CREATE TABLE queues (name TEXT PRIMARY KEY, settings BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE messages (
    seq INTEGER PRIMARY KEY, queue TEXT NOT NULL, attempt INTEGER NOT NULL,
    due_s REAL NOT NULL, sent_s REAL NOT NULL, packed BLOB NOT NULL
);
CREATE TABLE leases (
    id TEXT PRIMARY KEY, queue TEXT NOT NULL, owner TEXT NOT NULL, request INTEGER,
    expires_s REAL NOT NULL, members BLOB NOT NULL
) WITHOUT ROWID;
CREATE TABLE seen (
    queue TEXT NOT NULL, key TEXT NOT NULL, until_s REAL NOT NULL, PRIMARY KEY (queue, key)
) WITHOUT ROWID;
CREATE TABLE replies (
    owner TEXT NOT NULL, request INTEGER NOT NULL, reply BLOB NOT NULL,
    PRIMARY KEY (owner, request)
) WITHOUT ROWID;
"""

_HEADER_BYTES = 100
_MAGIC = b"SQLite format 3\x00"


# With six columns, far below SQLite's 32,766 parameters; more rows gained nothing here.
_ROWS_AT_ONCE = 100


@attrs.define
class Run:
    """One statement for many rows.

    With `values`, a row of placeholders, the statement ends in VALUES and takes many rows at
    once. Each step of SQLite gives Python's lock away and must win it back from a busy loop,
    so a hundred rows in one step are several times faster than a hundred steps.
    """

    sql: str
    rows: list[Any]
    values: str = ""

    def write(self, connection: sqlite3.Connection) -> None:
        """Execute it."""
        if not self.values:
            connection.executemany(self.sql, self.rows)
            return
        for start in range(0, len(self.rows), _ROWS_AT_ONCE):
            rows = self.rows[start : start + _ROWS_AT_ONCE]
            places = ", ".join([self.values] * len(rows))
            connection.execute(f"{self.sql} {places}", tuple(chain.from_iterable(rows)))


class _GroupConnection(sqlite3.Connection):
    """A connection whose `commit` first writes the group it was loaded with.

    aiosqlite hands each call to its thread and back; this way a group costs one such trip.
    """

    group: Sequence[Run] = ()

    def commit(self) -> None:
        group, self.group = self.group, ()
        self.execute("BEGIN IMMEDIATE")
        try:
            for run in group:
                run.write(self)
            self.execute("COMMIT")
        except BaseException:
            # After some errors (disk full) SQLite has rolled back already.
            if self.in_transaction:
                self.execute("ROLLBACK")
            raise


class Database:
    """The open file. `sqlite3` runs in aiosqlite's thread, never on the loop."""

    def __init__(self, path: Path, connection: aiosqlite.Connection, raw: _GroupConnection) -> None:
        self.path = path
        self._connection = connection
        self._raw = raw

    @classmethod
    async def open(cls, path: Path, *, max_bytes: int | None = None) -> Database:
        """Open, or make, the file; `StorageFailed` leaves one that is not ours untouched."""
        made: list[_GroupConnection] = []

        def connect() -> sqlite3.Connection:
            _recognise(path)
            made.append(_connect(path, max_bytes))
            return made[0]

        with translate(path):
            connection = await aiosqlite.Connection(connect, iter_chunk_size=1000)
        return cls(path, connection, made[0])

    async def commit(self, group: Sequence[Run]) -> None:
        """Write all of the group, durably, or nothing."""
        self._raw.group = group
        with translate(self.path):
            await self._connection.commit()

    async def rows(self, sql: str) -> Iterable[sqlite3.Row]:
        """Read."""
        with translate(self.path):
            return await self._connection.execute_fetchall(sql)

    async def close(self) -> None:
        """Close; the last one to close also folds the log into the file."""
        with translate(self.path):
            await self._connection.close()


def _recognise(path: Path) -> None:
    """Read the header, without SQLite, so that a file which is not ours stays as it is."""
    if not path.exists() or path.stat().st_size == 0:
        _create(path)
        return
    with path.open("rb") as file:
        header = file.read(_HEADER_BYTES)
    if len(header) < _HEADER_BYTES or not header.startswith(_MAGIC):
        raise StorageFailed(
            str(path), "this is not an SQLite file; move it away, or name another folder"
        )
    version, application = unpack_from(">I", header, 60)[0], unpack_from(">I", header, 68)[0]
    if application != APPLICATION_ID:
        raise StorageFailed(
            str(path), "this database is another program's; move it away, or name another folder"
        )
    if version != SCHEMA_VERSION:
        raise StorageFailed(
            str(path),
            f"its format is version {version}, this release reads {SCHEMA_VERSION}; use the "
            f"release that wrote it, or drain it there first",
        )


def _create(path: Path) -> None:
    # Under another name first: a crash half-way leaves no half-made database.
    draft = path.with_suffix(".new")
    draft.unlink(missing_ok=True)
    connection = sqlite3.connect(draft)
    try:
        connection.executescript(
            f"PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {SCHEMA_VERSION};"
            f"PRAGMA page_size = {PAGE_BYTES}; {_SCHEMA}"
        )
        connection.commit()
    finally:
        connection.close()
    os.replace(draft, path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _connect(path: Path, max_bytes: int | None) -> _GroupConnection:
    raw = sqlite3.connect(
        path,
        isolation_level=None,
        factory=_GroupConnection,
        check_same_thread=False,
        cached_statements=2 * _ROWS_AT_ONCE,
    )
    assert isinstance(raw, _GroupConnection)
    try:
        raw.execute("PRAGMA journal_mode = WAL")
        raw.execute("PRAGMA synchronous = FULL")
        if max_bytes is not None:
            raw.execute(f"PRAGMA max_page_count = {max(1, max_bytes // PAGE_BYTES)}")
    except BaseException:
        raw.close()
        raise
    return raw
