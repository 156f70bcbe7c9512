"""A till that takes payments in the transaction of an inbox, for each inbox that has one."""

from __future__ import annotations

import asyncio
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing
from pathlib import Path
from typing import Any

import psycopg
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

from handlers import PostgresInbox, SqlAlchemyInbox, SqliteInbox

MAKE = "CREATE TABLE IF NOT EXISTS payments (order_id TEXT)"
PAY = "INSERT INTO payments (order_id) VALUES ('A1')"
COUNT = "SELECT count(*) FROM payments"
Handle = Callable[[Any], Any]


class Till(ABC):
    """An inbox, and what handlers do in its transactions."""

    inbox: Any
    database_error: type[Exception]
    takes_turns = False
    """Whether one transaction at a time writes."""

    @abstractmethod
    def block(self) -> AbstractAsyncContextManager[Any]:
        """The transaction of the inbox."""

    @abstractmethod
    async def execute(self, connection: Any, statement: str) -> None:
        """Run a statement in it."""

    @abstractmethod
    def look(self, statement: str) -> Any:
        """The first value of a statement's first row, committed, by other means."""

    async def payments(self) -> int:
        """How many were taken."""
        return int(await asyncio.to_thread(self.look, COUNT))

    async def forget(self) -> None:
        """Remove every row of the inbox."""
        await asyncio.to_thread(self.look, self.forget_all)

    forget_all: str

    def paying(self, *, then: BaseException | None = None) -> Handle:
        """A handler that takes a payment."""

        async def handle(_: Any) -> None:
            async with self.block() as connection:
                await self.execute(connection, PAY)
                if then is not None:
                    raise then

        return handle


class SqliteTill(Till):
    database_error: type[Exception] = sqlite3.OperationalError
    takes_turns = True
    forget_all = "DELETE FROM pump_inbox RETURNING 1"

    def __init__(self, path: Path) -> None:
        self._path = path
        self.inbox: Any = SqliteInbox(path)
        with closing(sqlite3.connect(path)) as connection:
            connection.execute(MAKE)

    def block(self) -> AbstractAsyncContextManager[Any]:
        return self.inbox.transaction()  # type: ignore[no-any-return]

    async def execute(self, connection: Any, statement: str) -> None:
        await connection.execute(statement)

    def look(self, statement: str) -> Any:
        with closing(sqlite3.connect(self._path)) as connection, connection:
            return connection.execute(statement).fetchone()[0]


class PostgresTill(Till):
    database_error: type[Exception] = psycopg.errors.UndefinedTable

    def __init__(self, url: str, **options: Any) -> None:
        self._server, _, self.schema = url.partition("?schema=")
        self.forget_all = f'DELETE FROM "{self.schema}".inbox RETURNING 1'
        self.inbox: Any = PostgresInbox(url, **options)
        with psycopg.connect(self._server, autocommit=True) as connection:
            connection.execute(f'CREATE SCHEMA "{self.schema}"'.encode())
            connection.execute(self._here(MAKE))

    def _here(self, statement: str) -> bytes:
        return statement.replace("payments", f'"{self.schema}".payments').encode()

    def block(self) -> AbstractAsyncContextManager[Any]:
        return self.inbox.transaction()  # type: ignore[no-any-return]

    async def execute(self, connection: Any, statement: str) -> None:
        await connection.execute(self._here(statement))

    def look(self, statement: str) -> Any:
        with psycopg.connect(self._server, autocommit=True) as connection:
            row = connection.execute(self._here(statement)).fetchone()
            assert row is not None
            return row[0]


class AlchemyPostgresTill(PostgresTill):
    database_error = DBAPIError

    def __init__(self, url: str, driver: str) -> None:
        super().__init__(url)
        bare = url.partition("?")[0].partition("://")[2]
        self.engine = create_async_engine(f"postgresql+{driver}://{bare}")
        self.inbox = SqlAlchemyInbox(self.engine, schema=self.schema, time_of="caller")

    def block(self) -> AbstractAsyncContextManager[Any]:
        return self.inbox.session()  # type: ignore[no-any-return]

    async def execute(self, connection: AsyncSession, statement: str) -> None:
        await connection.execute(text(self._here(statement).decode()))


class AlchemySqliteTill(SqliteTill):
    database_error = DBAPIError

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.engine = create_async_engine(f"sqlite+aiosqlite:///{path}")
        self.inbox = SqlAlchemyInbox(self.engine)

    def block(self) -> AbstractAsyncContextManager[Any]:
        return self.inbox.session()  # type: ignore[no-any-return]

    async def execute(self, connection: AsyncSession, statement: str) -> None:
        await connection.execute(text(statement))


@asynccontextmanager
async def opened(till: Till) -> AsyncIterator[Till]:
    """Close inbox and engine at the end."""
    try:
        yield till
    finally:
        await till.inbox.aclose()
        if isinstance(till, AlchemyPostgresTill | AlchemySqliteTill):
            await till.engine.dispose()
