"""SQLite files of the ledger's own: recognised before they are touched, made whole or not."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import attrs

from ...errors import StorageFailed
from ..opening import BUSY_S
from .row_store import translated

_MAX_ATTEMPTS = 10


@attrs.frozen(kw_only=True)
class FileFormat:
    """What tells a file of ours from others, and what is in a new one."""

    application_id: int
    version: int
    tables: tuple[str, ...] = attrs.field(repr=False)


def open_file(path: Path, form: FileFormat) -> sqlite3.Connection:
    """Open or make the file, for the thread that uses it; `StorageFailed` leaves others' alone.

    In WAL mode, so that readers and the writer do not wait for each other, and in autocommit. A
    commit is on the disk when it returns.
    """
    with translated(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_dir():
            raise StorageFailed(str(path), "this is a folder; name a file")
        if path.exists():
            _recognise(path, form)
        connection = sqlite3.connect(
            path, isolation_level=None, timeout=BUSY_S, check_same_thread=False
        )
        try:
            _make_tables(connection, form)
            _enter_wal(connection)
            connection.execute("PRAGMA synchronous=FULL")
        except BaseException:
            connection.close()
            raise
    return connection


@contextmanager
def transaction(connection: sqlite3.Connection, path: Path) -> Iterator[None]:
    """Commit what the block writes, or nothing of it."""
    with translated(path):
        connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            connection.execute("COMMIT")
        except BaseException:
            # After some errors (disk full) SQLite has rolled back already.
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise


def check_presence(path: Path, known: os.stat_result) -> None:
    """Raise unless the name still stands for the file that was opened.

    What goes into a file that was removed is lost with the process.
    """
    try:
        is_there = os.path.samestat(os.stat(path), known)
    except OSError:
        is_there = False
    if not is_there:
        raise StorageFailed(str(path), "it was removed while in use; rows go into a new one")


@contextmanager
def snapshot(path: Path, form: FileFormat) -> Iterator[sqlite3.Connection]:
    """The file as it is now, for reading, whoever writes it meanwhile."""
    with closing(_connect_to_read(path)) as connection, translated(path):
        _check(connection, path, form)
        connection.execute("BEGIN")
        # The first look fixes the moment.
        connection.execute("SELECT 1 FROM sqlite_master").fetchone()
        yield connection


def _connect_to_read(path: Path) -> sqlite3.Connection:
    with translated(path):
        uri = f"{path.resolve().as_uri()}?mode=ro"
        connection = sqlite3.connect(uri, uri=True, isolation_level=None, timeout=BUSY_S)
        try:
            connection.execute("PRAGMA schema_version").fetchone()
            return connection
        except sqlite3.OperationalError:
            connection.close()
            if path.with_name(f"{path.name}-wal").exists():
                raise
        # In a folder that may not be written, SQLite needs to be told that nobody else does.
        return sqlite3.connect(f"{uri}&immutable=1", uri=True, isolation_level=None)


def _recognise(path: Path, form: FileFormat) -> None:
    with closing(_connect_to_read(path)) as connection:
        _check(connection, path, form)


def _check(connection: sqlite3.Connection, path: Path, form: FileFormat) -> None:
    application_id, version = _identity(connection)
    if not application_id and _is_empty(connection):
        return
    if application_id != form.application_id:
        raise StorageFailed(
            str(path), "this is another program's database; name another file, or move it away"
        )
    if version != form.version:
        raise StorageFailed(
            str(path),
            f"its format is version {version}, and this release reads {form.version}; use the "
            f"release that wrote it, or name another file",
        )


def _identity(connection: sqlite3.Connection) -> tuple[int, int]:
    [application_id] = connection.execute("PRAGMA application_id").fetchone()
    [version] = connection.execute("PRAGMA user_version").fetchone()
    return application_id, version


def _is_empty(connection: sqlite3.Connection) -> bool:
    [count] = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    return not count


def _make_tables(connection: sqlite3.Connection, form: FileFormat) -> None:
    connection.execute("BEGIN IMMEDIATE")
    try:
        # Another process may have been first.
        if _identity(connection) == (0, 0):
            connection.execute(f"PRAGMA application_id = {form.application_id}")
            connection.execute(f"PRAGMA user_version = {form.version}")
            for statement in form.tables:
                connection.execute(statement)
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _enter_wal(connection: sqlite3.Connection) -> None:
    # The change to WAL does not wait for others by itself; beginning to write does.
    for attempt in range(1, _MAX_ATTEMPTS + 1):
        try:
            connection.execute("PRAGMA journal_mode=WAL").fetchall()
            return
        except sqlite3.OperationalError as error:
            if attempt == _MAX_ATTEMPTS or "locked" not in str(error):
                raise
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("COMMIT")
