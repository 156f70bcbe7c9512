"""An outbox of each kind, and the user's transactions on its database."""

from __future__ import annotations

import abc
import sqlite3
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import aiosqlite
import psycopg
import pytest

from pump.message import new_id
from pump.outbox import Outbox, PostgresOutbox, SqliteOutbox
from tests.brokers.postgres_server import PostgresServer


class Place(abc.ABC):
    """A database of the user's, with the table `row` in it."""

    @abc.abstractmethod
    def outbox(self, *, keep: timedelta | None = None) -> Outbox:
        """An outbox there, closed."""

    @abc.abstractmethod
    def transaction(self) -> AbstractAsyncContextManager[Any]:
        """A connection with a transaction that commits at the end of the block."""

    @abc.abstractmethod
    def execute(self, sql: str, *arguments: object) -> list[Any]:
        """Ask the database directly; `@` stands for what the names of tables begin with."""


class PostgresPlace(Place):
    """A schema of its own on this process's server."""

    def __init__(self, server: PostgresServer) -> None:
        self.server = server
        self.schema = f"s_{new_id()[:8]}{new_id()[-6:]}"

    def url(self, *, port: int | None = None, user: str = "") -> str:
        """Of an outbox in the schema."""
        return f"{self.server.url(port=port, user=user)}?schema={self.schema}"

    def outbox(self, *, keep: timedelta | None = None) -> PostgresOutbox:
        return PostgresOutbox(self.url(), keep=keep)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Any]:
        async with await psycopg.AsyncConnection.connect(self.server.url()) as connection:
            yield connection

    def execute(self, sql: str, *arguments: object) -> list[Any]:
        with psycopg.connect(self.server.url(), autocommit=True) as connection:
            named = sql.replace("@", f'"{self.schema}".').replace("?", "%s")
            cursor = connection.execute(named.encode(), arguments or None)
            return cursor.fetchall() if cursor.description is not None else []

    def notes(self) -> list[str]:
        """What the user's own table holds."""
        return [note for (note,) in self.execute("SELECT note FROM @row ORDER BY note")]

    def insert(self) -> str:
        """The statement that adds one of the user's rows."""
        return f"INSERT INTO \"{self.schema}\".row VALUES ('mine')"


class SqlitePlace(Place):
    """A file of its own."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def outbox(self, *, keep: timedelta | None = None) -> SqliteOutbox:
        return SqliteOutbox(self.path, keep=keep)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Any]:
        async with aiosqlite.connect(self.path, timeout=30) as connection:
            yield connection
            await connection.commit()

    def execute(self, sql: str, *arguments: object) -> list[Any]:
        with closing(sqlite3.connect(self.path)) as connection, connection:
            return connection.execute(sql.replace("@", "pumphouse_"), arguments).fetchall()


@pytest.fixture
def postgres_place(postgres: PostgresServer) -> Iterator[PostgresPlace]:
    place = PostgresPlace(postgres)
    place.execute(f'CREATE SCHEMA "{place.schema}"')
    place.execute("CREATE TABLE @row (note text)")
    yield place
    place.execute(f'DROP SCHEMA IF EXISTS "{place.schema}" CASCADE')


@pytest.fixture
def sqlite_place(tmp_path: Path) -> SqlitePlace:
    path = tmp_path / "user.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE row (note TEXT)")
    return SqlitePlace(path)


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.broker)])
def place(request: pytest.FixtureRequest) -> Place:
    """Each of them."""
    found: Place = request.getfixturevalue(f"{request.param}_place")
    return found


def ids_of(rows: Sequence[Any]) -> list[str]:
    """Message ids, as the tables hold them."""
    return [bytes(id_).decode() for (id_,) in rows]
