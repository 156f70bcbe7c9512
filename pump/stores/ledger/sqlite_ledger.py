"""A ledger in one SQLite file: the small case, and nothing to install.

The table is `outcomes`; several processes of a machine may write it, and anyone may read it with
SQL meanwhile.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import timedelta
from functools import partial
from itertools import chain
from pathlib import Path

import attrs

from ...errors import ConfigurationError, StorageFailed
from ..opening import BUSY_S
from .buffered_ledger import DEFAULT_BUFFERING, BufferedLedger, Buffering
from .rows import COLUMNS, VERSION, ColumnKind, Row, encodable, is_passing, translated

# SQLite files of the ledger's own: recognised before they are touched, made whole or not.

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
    """The file as it is now, for reading, while it may be written."""
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
        # In a folder that may not be written, SQLite needs to be told that no other process does.
        return sqlite3.connect(f"{uri}&immutable=1", uri=True, isolation_level=None)


def _recognise(path: Path, form: FileFormat) -> None:
    with closing(_connect_to_read(path)) as connection:
        _check(connection, path, form)


def _check(connection: sqlite3.Connection, path: Path, form: FileFormat) -> None:
    # At one moment: between two looks another process may make the tables.
    connection.execute("BEGIN")
    try:
        application_id, version = _identity(connection)
        is_new = not application_id and _is_empty(connection)
    finally:
        connection.execute("COMMIT")
    if is_new:
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


_TYPES = {
    ColumnKind.INTEGER: "INTEGER",
    ColumnKind.REAL: "REAL",
    ColumnKind.TEXT: "TEXT",
    ColumnKind.TIME: "INTEGER",
}
_DEFINITIONS = ", ".join(
    f"{each.name} {_TYPES[each.kind]}{'' if each.is_nullable else ' NOT NULL'}" for each in COLUMNS
)
CREATE_TABLE = f"CREATE TABLE outcomes ({_DEFINITIONS})"
_ROW = f"({', '.join('?' * len(COLUMNS))})"
_INSERT = f"INSERT INTO outcomes VALUES {_ROW}"
_ROWS_AT_ONCE = 100
_INSERT_MANY = f"INSERT INTO outcomes VALUES {', '.join([_ROW] * _ROWS_AT_ONCE)}"
"""Each step of SQLite gives Python's lock away and must win it back from a busy loop, so a hundred
rows in one step are several times faster than a hundred steps."""
FORMAT = FileFormat(
    application_id=0x504D504C,
    version=VERSION,
    tables=(CREATE_TABLE, "CREATE INDEX outcomes_time ON outcomes (time)"),
)
_PRUNE_EVERY_S = 60.0
_PRUNE_AT_ONCE = 20_000
"""Rows removed in one transaction: no other process writes meanwhile."""


class SqliteLedger(BufferedLedger):
    """Rows in the file at `path`, made when it is not there.

    Rows older than `keep` are removed, within a minute; None keeps them for ever. The file does
    not shrink: new rows take the room of old ones. `detail=False` leaves the texts of errors
    out, which may quote a body.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        keep: timedelta | None = None,
        detail: bool = True,
        buffering: Buffering = DEFAULT_BUFFERING,
    ) -> None:
        if keep is not None and keep <= timedelta(0):
            raise ConfigurationError("SqliteLedger.keep", keep, "use more than zero")
        if os.fspath(path) in ("", ":memory:"):
            raise ConfigurationError("SqliteLedger.path", os.fspath(path), "name a file")
        file = Path(path)
        super().__init__(str(file), partial(LedgerFile, file, keep), buffering, detail=detail)


class LedgerFile:
    """The file, as its writer sees it."""

    def __init__(self, path: Path, keep: timedelta | None) -> None:
        self._path = path
        self._keep = keep
        self._connection: sqlite3.Connection | None = None

    @property
    def care_every_s(self) -> float | None:
        return None if self._keep is None else _PRUNE_EVERY_S

    def open(self) -> None:
        try:
            self._opened()
        except StorageFailed as error:
            if not is_passing(error):
                raise

    def append(self, rows: Sequence[Row]) -> bool:
        try:
            self._write(rows)
        except UnicodeEncodeError:
            self._write(encodable(rows))
        return False

    def _write(self, rows: Sequence[Row]) -> None:
        connection = self._opened()
        try:
            with transaction(connection, self._path):
                _insert(connection, rows)
            check_presence(self._path, self._stat)
        except StorageFailed as error:
            if not is_passing(error):
                self._let_go()
            raise

    def care(self, now_s: float) -> None:
        if self._keep is None:
            return
        # No row is older than 1970, though `keep` may be.
        oldest_us = max(0, round((now_s - self._keep.total_seconds()) * 1e6))
        connection = self._opened()
        removed = _PRUNE_AT_ONCE
        while removed == _PRUNE_AT_ONCE:
            with transaction(connection, self._path):
                removed = connection.execute(
                    "DELETE FROM outcomes WHERE rowid IN"
                    " (SELECT rowid FROM outcomes WHERE time < ? LIMIT ?)",
                    (oldest_us, _PRUNE_AT_ONCE),
                ).rowcount

    def close(self, now_s: float) -> None:
        self._let_go()

    def _opened(self) -> sqlite3.Connection:
        if self._connection is None:
            self._connection = open_file(self._path, FORMAT)
            self._stat = os.stat(self._path)
        return self._connection

    def _let_go(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


def _insert(connection: sqlite3.Connection, rows: Sequence[Row]) -> None:
    whole = len(rows) - len(rows) % _ROWS_AT_ONCE
    for start in range(0, whole, _ROWS_AT_ONCE):
        many = chain.from_iterable(rows[start : start + _ROWS_AT_ONCE])
        connection.execute(_INSERT_MANY, tuple(many))
    # Plain tuples: sqlite3 takes half as long again for named ones.
    connection.executemany(_INSERT, map(tuple, rows[whole:]))
