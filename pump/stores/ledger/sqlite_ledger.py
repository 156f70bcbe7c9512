"""A ledger in one SQLite file: the small case, and nothing to install.

The table is `outcomes`; several processes of a machine may write it, and anyone may read it with
SQL meanwhile.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from itertools import chain
from pathlib import Path

from ...errors import ConfigurationError, StorageFailed
from .buffered_ledger import DEFAULT_BUFFERING, BufferedLedger, Buffering
from .row_store import is_passing
from .rows import encodable
from .schema import COLUMNS, VERSION, Kind, Row
from .sqlite_file import FileFormat, check_presence, open_file, transaction

_TYPES = {Kind.INTEGER: "INTEGER", Kind.REAL: "REAL", Kind.TEXT: "TEXT", Kind.TIME: "INTEGER"}
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
"""Rows removed in one transaction: nobody else writes meanwhile."""


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
        super().__init__(str(file), partial(SqliteStore, file, keep), buffering, detail=detail)


class SqliteStore:
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
