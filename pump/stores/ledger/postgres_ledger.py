"""A ledger in PostgreSQL: one table for all machines, to be read with SQL meanwhile.

A batch of rows is one `COPY` in one transaction. Where the answer to its commit is lost, the
transaction is asked for by its number before the rows are written again: each is there once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from datetime import timedelta
from functools import partial
from typing import Any, Final

import attrs

from ...errors import ConfigurationError, ConnectionFailed, PumpError, StorageFailed, Throttled
from ...postgres.database import PACKAGES
from ...postgres.errors import connect_fault, fault_of
from ...postgres.schema import FIND_TABLE, LOCK, Component, named
from ...postgres.settings import PostgresSettings
from ...subscription import MakeChannels
from .buffered_ledger import DEFAULT_BUFFERING, BufferedLedger, Buffering
from .rows import COLUMNS, ColumnKind, Row, encodable

_TYPES: Final = {
    ColumnKind.INTEGER: "integer",
    ColumnKind.REAL: "float8",
    ColumnKind.TEXT: "text",
    ColumnKind.TIME: "bigint",
}
_NAMES: Final = ", ".join(each.name for each in COLUMNS)
_DEFINITIONS: Final = ", ".join(
    f"{each.name} {_TYPES[each.kind]}{'' if each.is_nullable else ' NOT NULL'}" for each in COLUMNS
)
LEDGER: Final = Component(
    version_table="ledger_version",
    version=1,
    upgrade=lambda found: (
        f"""
CREATE TABLE @.ledger_version (number int NOT NULL);
INSERT INTO @.ledger_version VALUES (0);
CREATE TABLE @.outcomes ({_DEFINITIONS}) WITH (autovacuum_vacuum_scale_factor = 0.05);
CREATE INDEX outcomes_time ON @.outcomes (time);
"""
    ),
)
_PRUNE: Final = """
WITH gone AS (
    DELETE FROM @.outcomes WHERE ctid = ANY (ARRAY(
        SELECT ctid FROM @.outcomes WHERE time >= %s AND time < %s
        ORDER BY time LIMIT %s FOR UPDATE SKIP LOCKED
    )) RETURNING time
)
SELECT count(*), max(time) FROM gone
"""
_PRUNE_EVERY_S: Final = 60.0
_PRUNE_AT_ONCE: Final = 5_000
"""Rows removed in one transaction, which locks no others."""
_NOT_THERE: Final = "there is no ledger; start one: pump run app:app --ledger postgres://…"


class PostgresLedger(BufferedLedger):
    """Rows in the table `outcomes` of the database at this URL, made when it is not there.

    Rows older than `keep` are removed, within a minute; None keeps them for ever. `detail=False`
    leaves the texts of errors out, which may quote a body. A database that cannot be reached is as
    a disk that fails: rows wait in memory, and no message does.
    """

    def __init__(
        self,
        where: str | PostgresSettings,
        *,
        keep: timedelta | None = None,
        detail: bool = True,
        buffering: Buffering = DEFAULT_BUFFERING,
        make_tables: MakeChannels = MakeChannels.CREATE,
    ) -> None:
        if keep is not None and keep <= timedelta(0):
            raise ConfigurationError("PostgresLedger.keep", keep, "use more than zero")
        settings = (
            where if isinstance(where, PostgresSettings) else PostgresSettings.from_url(where)
        )
        make_store = partial(LedgerTable, settings, keep, MakeChannels(make_tables))
        super().__init__(settings.target, make_store, buffering, detail=detail)


class LedgerTable:
    """The table, as its writer sees it."""

    def __init__(
        self,
        settings: PostgresSettings,
        keep: timedelta | None,
        make_tables: MakeChannels = MakeChannels.CREATE,
    ) -> None:
        self._settings = settings
        self._keep = keep
        self._make_tables = make_tables
        self._connection: Any = None
        self._in_doubt: str | None = None
        """The transaction of the batch whose commit was not answered."""

    @property
    def care_every_s(self) -> float | None:
        return None if self._keep is None else _PRUNE_EVERY_S

    def open(self) -> None:
        try:
            self._opened()
        except StorageFailed as error:
            if not isinstance(error.__cause__, ConnectionFailed | Throttled):
                raise

    def append(self, rows: Sequence[Row]) -> bool:
        with self._in_use() as connection:
            if not self._was_committed(connection):
                try:
                    self._copy(connection, rows)
                except (UnicodeEncodeError, _driver().DataError):
                    self._copy(connection, _storable(rows))
            self._in_doubt = None
        return False

    def care(self, now_s: float) -> None:
        if self._keep is None:
            return
        before_us = max(0, round((now_s - self._keep.total_seconds()) * 1e6))
        from_us, count = 0, _PRUNE_AT_ONCE
        while count == _PRUNE_AT_ONCE:
            with self._in_use() as connection:
                arguments = (from_us, before_us, _PRUNE_AT_ONCE)
                count, last_us = connection.execute(self._named(_PRUNE), arguments).fetchone()
            # What another transaction still sees stays in the index: not to be read each time.
            from_us = from_us if last_us is None else last_us

    def close(self, now_s: float) -> None:
        self._let_go()

    def _copy(self, connection: Any, rows: Sequence[Row]) -> None:
        copy_in = self._named(f"COPY @.outcomes ({_NAMES}) FROM STDIN")
        with connection.transaction():
            [self._in_doubt] = connection.execute("SELECT pg_current_xact_id()::text").fetchone()
            with connection.cursor().copy(copy_in) as copy:
                for row in rows:
                    copy.write_row(row)

    def _was_committed(self, connection: Any) -> bool:
        if self._in_doubt is None:
            return False
        question = "SELECT pg_xact_status(%s::xid8)"
        try:
            [status] = connection.execute(question, (self._in_doubt,)).fetchone()
        except _driver().errors.InvalidParameterValue:
            # A server that was restored to an earlier moment.
            return False
        if status == "in progress":
            raise StorageFailed(self._settings.target, "the last rows are still being committed")
        return bool(status == "committed")

    @contextmanager
    def _in_use(self) -> Iterator[Any]:
        connection = self._opened()
        try:
            with translated(self._settings):
                yield connection
        except BaseException:
            # Whatever it was, the next try begins with a connection that is known to be sound.
            self._let_go()
            raise

    def _opened(self) -> Any:
        if self._connection is None:
            connection = connect(self._settings)
            try:
                with translated(self._settings):
                    self._see_to_table(connection)
            except BaseException:
                connection.close()
                raise
            self._connection = connection
        return self._connection

    def _see_to_table(self, connection: Any) -> None:
        if self._make_tables is MakeChannels.ASSUME:
            return
        found = version_in(connection, self._settings.schema)
        if found < LEDGER.version and self._make_tables is MakeChannels.CREATE:
            with connection.transaction():
                connection.execute(self._named(LOCK))
                # Looked at again: another process may have made it meanwhile.
                found = version_in(connection, self._settings.schema)
                if found < LEDGER.version:
                    connection.execute(self._named(LEDGER.statements(found)))
        elif not found:
            raise ConfigurationError("ledger", self._settings.target, _NOT_THERE)
        else:
            LEDGER.check(found, self._settings.schema)

    def _let_go(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _named(self, sql: str) -> str:
        return named(sql, self._settings.schema)


@attrs.frozen
class PostgresTable:
    """The table `outcomes` at one moment, read as one of SQLite is."""

    connection: Any
    _cursors: list[Any] = attrs.field(factory=list, init=False)

    def execute(self, sql: str, values: Sequence[object] = ()) -> Any:
        """A cursor that fetches from the server as it is read."""
        cursor = self.connection.cursor(name=f"rows_{len(self._cursors)}")
        self._cursors.append(cursor)
        return cursor.execute(sql.replace("?", "%s"), values)

    def close(self) -> None:
        """End the cursors; the connection stays."""
        for cursor in self._cursors:
            with suppress(_driver().Error):
                cursor.close()


@contextmanager
def postgres_snapshot(settings: PostgresSettings) -> Iterator[PostgresTable]:
    """The table as it is now, for reading, while it may be written."""
    with closing(connect(settings)) as connection, translated(settings):
        found = version_in(connection, settings.schema)
        if not found:
            raise ConfigurationError("ledger", settings.target, _NOT_THERE)
        LEDGER.check(found, settings.schema)
        connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        connection.execute(named("SET LOCAL search_path = {schema}", settings.schema))
        with closing(PostgresTable(connection)) as table:
            yield table


def version_in(connection: Any, schema: str) -> int:
    """The version of the ledger that is there, 0 for none."""
    [is_there] = connection.execute(FIND_TABLE, (schema, LEDGER.version_table)).fetchone()
    if not is_there:
        return 0
    [version] = connection.execute(named(LEDGER.get_version, schema)).fetchone()
    return int(version)


def connect(settings: PostgresSettings) -> Any:
    """A connection for the thread that asks, which commits what is in no transaction."""
    PACKAGES.check_installed()
    password = settings.password
    try:
        return _driver().connect(
            **settings.connection,
            autocommit=True,
            prepare_threshold=None,
            connect_timeout=max(2, round(settings.connect_timeout_s)),
            # A commit that is not answered must end some time, for the next try to find out.
            tcp_user_timeout=round(settings.request_timeout_s * 1000),
        )
    except _driver().Error as error:
        secrets = () if password is None else (password.reveal(),)
        fault = connect_fault(error, code=error.sqlstate, target=settings.target, secrets=secrets)
        raise _storage_failed(settings, fault) from fault


@contextmanager
def translated(settings: PostgresSettings) -> Iterator[None]:
    """Say what failed as every ledger says it."""
    driver = _driver()
    try:
        yield
    except driver.DataError:
        raise
    except driver.Error as error:
        fault = fault_of(
            error, code=error.sqlstate, target=settings.target, queue="", operation="ledger"
        )
        raise _storage_failed(settings, fault) from fault


def _storage_failed(settings: PostgresSettings, fault: PumpError) -> StorageFailed:
    return StorageFailed(settings.target, getattr(fault, "detail", None) or str(fault))


def _storable(rows: Sequence[Row]) -> list[Row]:
    """The rows with every text such that a column can have it."""
    return [
        Row._make(each.replace("\0", "\\x00") if isinstance(each, str) else each for each in row)
        for row in encodable(rows)
    ]


def _driver() -> Any:
    import psycopg

    return psycopg
