"""Transactions of the user's, whatever library they belong to: recognised, checked, written in.

By the names of a class and its bases, so that no library is imported for it. A row is written by
the means of the transaction itself, so it is committed with it, rolled back with it, and seen by no
relay before.
"""

from __future__ import annotations

import sqlite3
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Sequence
from enum import Enum, auto
from typing import Any, Final, TypeAlias

import attrs

from ..errors import ConfigurationError
from .store import Posted

FIELD: Final = "post.transaction"
ACCEPTED: Final = (
    "give a SQLAlchemy Session, AsyncSession, Connection or AsyncConnection, a psycopg Connection "
    "or AsyncConnection, an asyncpg Connection, Django's connection or its alias, or a Connection "
    "of sqlite3 or aiosqlite"
)
# Of the user's libraries, which are not imported for their types' sake.
Handle: TypeAlias = Any


class DatabaseKind(Enum):
    """The database that an outbox is in."""

    POSTGRES = "postgresql"
    SQLITE = "sqlite"


class Style(Enum):
    """How a statement names its parameters."""

    FORMAT = auto()
    NUMBERED = auto()
    MARKS = auto()
    NAMED = auto()

    def placed(self, sql: str, count: int) -> str:
        """The statement, in which `{1}` is the first parameter."""
        for number in range(1, count + 1):
            sql = sql.replace(f"{{{number}}}", self._name(number))
        return sql

    def _name(self, number: int) -> str:
        match self:
            case Style.NUMBERED:
                return f"${number}"
            case Style.NAMED:
                return f":p{number}"
            case Style.FORMAT:
                return "%s"
            case Style.MARKS:
                return "?"


@attrs.frozen
class Write:
    """A statement with the values of its parameters, for each time that it is to be run."""

    sql: str
    values: Sequence[tuple[object, ...]]


@attrs.frozen
class Target:
    """Where an outbox is, and how its rows are written."""

    dialect: DatabaseKind
    writes: Callable[[Sequence[Posted]], Sequence[Write]]


class Writer(ABC):
    """Writes posts in one transaction."""

    is_blocking = False
    """Whether it writes in the thread that calls, as its library wants it."""
    style = Style.FORMAT

    def __init__(self, handle: Handle, target: Target) -> None:
        self.handle = handle
        self.target = target

    @abstractmethod
    def write(self, posted: Sequence[Posted]) -> Coroutine[Any, Any, None] | None:
        """Write them; errors are those of the user's library, as of any statement."""

    def require(self, dialect: str) -> None:
        """Raise where it is a transaction of another kind of database than the outbox."""
        if not dialect.startswith(self.target.dialect.value):
            kind = "PostgresOutbox" if dialect.startswith("postgres") else "SqliteOutbox"
            remedy = f"it is one of {dialect}; give App(outbox=…) the {kind} of that database"
            raise ConfigurationError(FIELD, type(self.handle), remedy)

    def refuse_autocommit(self, remedy: str) -> None:
        """Raise, as the message would be sent whatever becomes of the user's rows."""
        raise ConfigurationError(
            FIELD, type(self.handle), f"it is in autocommit, with no transaction open; {remedy}"
        )

    def placed(self, posted: Sequence[Posted]) -> list[tuple[str, Sequence[tuple[object, ...]]]]:
        """The statements in the library's own style."""
        return [
            (self.style.placed(each.sql, len(each.values[0])), each.values)
            for each in self.target.writes(posted)
        ]


class BlockingWriter(Writer):
    """One whose library blocks."""

    is_blocking = True

    @abstractmethod
    def write(self, posted: Sequence[Posted]) -> None: ...


class AsyncWriter(Writer):
    """One whose library awaits."""

    @abstractmethod
    async def write(self, posted: Sequence[Posted]) -> None: ...


def writer_for(transaction: object, target: Target) -> Writer:
    """What writes in this transaction; `ConfigurationError` for what is none."""
    if isinstance(transaction, str):
        return _Django(_django_connection(transaction), target)
    for kind in type(transaction).__mro__:
        writer = _WRITERS.get((kind.__module__.partition(".")[0], kind.__name__))
        if writer is not None:
            return writer(transaction, target)
    raise ConfigurationError(FIELD, type(transaction), ACCEPTED)


# psycopg, asyncpg.


class _Psycopg(BlockingWriter):
    def write(self, posted: Sequence[Posted]) -> None:
        _check_psycopg(self)
        for sql, values in self.placed(posted):
            for each in values:
                self.handle.execute(sql, each)


class _AsyncPsycopg(AsyncWriter):
    async def write(self, posted: Sequence[Posted]) -> None:
        _check_psycopg(self)
        for sql, values in self.placed(posted):
            for each in values:
                await self.handle.execute(sql, each)


def _check_psycopg(writer: Writer) -> None:
    writer.require("postgresql")
    if writer.handle.autocommit and writer.handle.info.transaction_status == 0:
        writer.refuse_autocommit("use `with connection.transaction():` around it")


class _Asyncpg(AsyncWriter):
    style = Style.NUMBERED

    async def write(self, posted: Sequence[Posted]) -> None:
        self.require("postgresql")
        if not self.handle.is_in_transaction():
            self.refuse_autocommit("use `async with connection.transaction():` around it")
        for sql, values in self.placed(posted):
            for each in values:
                await self.handle.execute(sql, *each)


# SQLite.

_SQLITE_REMEDY: Final = "execute BEGIN first, or leave its isolation_level at the default"


class _Sqlite(BlockingWriter):
    style = Style.MARKS

    def write(self, posted: Sequence[Posted]) -> None:
        self.require("sqlite")
        if _commits_each(self.handle):
            self.refuse_autocommit(_SQLITE_REMEDY)
        for sql, values in self.placed(posted):
            self.handle.executemany(sql, values)


class _Aiosqlite(AsyncWriter):
    style = Style.MARKS

    async def write(self, posted: Sequence[Posted]) -> None:
        self.require("sqlite")
        if _commits_each(self.handle):
            self.refuse_autocommit(_SQLITE_REMEDY)
        for sql, values in self.placed(posted):
            await self.handle.executemany(sql, values)


def _commits_each(connection: Handle) -> bool:
    if connection.in_transaction:
        return False
    # Since Python 3.12 a connection may have `autocommit`, a number where it is as it was before.
    is_always = getattr(connection, "autocommit", None)
    return is_always is True or (is_always is not False and connection.isolation_level is None)


# SQLAlchemy, on any driver.


class _SqlAlchemy(BlockingWriter):
    style = Style.NAMED

    def write(self, posted: Sequence[Posted]) -> None:
        _write_through(self, self.handle, posted)


class _SqlAlchemySession(BlockingWriter):
    style = Style.NAMED

    def write(self, posted: Sequence[Posted]) -> None:
        _write_through(self, self.handle.connection(), posted)


class _AsyncSqlAlchemy(AsyncWriter):
    style = Style.NAMED

    async def write(self, posted: Sequence[Posted]) -> None:
        await self.handle.run_sync(lambda connection: _write_through(self, connection, posted))


class _AsyncSqlAlchemySession(AsyncWriter):
    style = Style.NAMED

    async def write(self, posted: Sequence[Posted]) -> None:
        connection = await self.handle.connection()
        await connection.run_sync(lambda it: _write_through(self, it, posted))


def _write_through(writer: Writer, connection: Handle, posted: Sequence[Posted]) -> None:
    """Write through a `Connection` of SQLAlchemy's; an async one's is the same inside."""
    writer.require(connection.dialect.name)
    if _is_autocommit(connection.connection.dbapi_connection):
        writer.refuse_autocommit("use a connection without isolation_level='AUTOCOMMIT'")
    text = sys.modules["sqlalchemy"].text
    for sql, values in writer.placed(posted):
        given = [{f"p{at}": value for at, value in enumerate(each, 1)} for each in values]
        connection.execute(text(sql), given)


def _is_autocommit(driver: Handle) -> bool:
    """Of the connection of a driver, or of what SQLAlchemy makes of an asynchronous one."""
    inner = getattr(driver, "_connection", driver)
    if isinstance(driver, sqlite3.Connection) or hasattr(inner, "in_transaction"):
        return _commits_each(inner)
    if getattr(driver, "isolation_level", None) == "autocommit":
        return True
    return getattr(driver, "autocommit", False) is True


# Django.


class _Django(BlockingWriter):
    def write(self, posted: Sequence[Posted]) -> None:
        self.require(self.handle.vendor)
        if not self.handle.in_atomic_block and self.handle.get_autocommit():
            self.refuse_autocommit("use `with transaction.atomic():` around it")
        with self.handle.cursor() as cursor:
            for sql, values in self.placed(posted):
                cursor.executemany(sql, values)


def _django_connection(alias: str) -> Handle:
    django_db = sys.modules.get("django.db")
    if django_db is None:
        raise ConfigurationError(FIELD, alias, f"Django is not loaded; {ACCEPTED}")
    if alias not in django_db.connections.settings:
        known = ", ".join(sorted(django_db.connections.settings))
        raise ConfigurationError(
            FIELD, alias, f"Django's DATABASES has no such alias, only {known}; {ACCEPTED}"
        )
    return django_db.connections[alias]


_WRITERS: Final[dict[tuple[str, str], type[Writer]]] = {
    ("sqlalchemy", "Session"): _SqlAlchemySession,
    ("sqlalchemy", "scoped_session"): _SqlAlchemySession,
    ("sqlalchemy", "Connection"): _SqlAlchemy,
    ("sqlalchemy", "AsyncSession"): _AsyncSqlAlchemySession,
    ("sqlalchemy", "async_scoped_session"): _AsyncSqlAlchemySession,
    ("sqlalchemy", "AsyncConnection"): _AsyncSqlAlchemy,
    ("psycopg", "Connection"): _Psycopg,
    ("psycopg", "AsyncConnection"): _AsyncPsycopg,
    ("asyncpg", "Connection"): _Asyncpg,
    ("asyncpg", "PoolConnectionProxy"): _Asyncpg,
    ("django", "BaseDatabaseWrapper"): _Django,
    ("django", "ConnectionProxy"): _Django,
    ("sqlite3", "Connection"): _Sqlite,
    ("aiosqlite", "Connection"): _Aiosqlite,
}
"""By the package of a class, and its name there."""
