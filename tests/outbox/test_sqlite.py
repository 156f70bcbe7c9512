"""An outbox in a SQLite file: every library's transaction, and what a relay does beside it."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
    closing,
    contextmanager,
    suppress,
)
from pathlib import Path
from typing import Any

import aiosqlite
import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from pump.blocking import BlockingApp
from pump.errors import ConfigurationError
from pump.outbox import SqliteOutbox

from .rig import Order, RecordingGateway, an_app, relay_all, relaying, until, until_empty

INSERT = "INSERT INTO row VALUES ('mine')"


class RolledBack(Exception):
    """The user's own error."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "user.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE row (note TEXT)")
    return path


@contextmanager
def _sqlite3(path: Path) -> Iterator[Any]:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(INSERT)
        yield connection


@contextmanager
def _sqlite3_begun(path: Path) -> Iterator[Any]:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("BEGIN")
        connection.execute(INSERT)
        yield connection
        connection.execute("COMMIT")


@contextmanager
def _session(path: Path) -> Iterator[Any]:
    engine = create_engine(f"sqlite:///{path}")
    try:
        with Session(engine) as session, session.begin():
            session.execute(text(INSERT))
            yield session
    finally:
        engine.dispose()


@contextmanager
def _connection(path: Path) -> Iterator[Any]:
    engine = create_engine(f"sqlite:///{path}")
    try:
        with engine.begin() as connection:
            connection.execute(text(INSERT))
            yield connection
    finally:
        engine.dispose()


@asynccontextmanager
async def _aiosqlite(path: Path) -> AsyncIterator[Any]:
    async with aiosqlite.connect(path) as connection:
        await connection.execute(INSERT)
        yield connection
        await connection.commit()


@asynccontextmanager
async def _async_session(path: Path) -> AsyncIterator[Any]:
    engine = create_async_engine(f"sqlite+aiosqlite:///{path}")
    try:
        async with AsyncSession(engine) as session, session.begin():
            await session.execute(text(INSERT))
            yield session
    finally:
        await engine.dispose()


Opened = Callable[[Path], AbstractContextManager[Any]]
AsyncOpened = Callable[[Path], AbstractAsyncContextManager[Any]]
BLOCKING: dict[str, Opened] = {
    "sqlite3": _sqlite3,
    "sqlite3, begun": _sqlite3_begun,
    "Session": _session,
    "Connection": _connection,
}
ASYNC: dict[str, AsyncOpened] = {"aiosqlite": _aiosqlite, "AsyncSession": _async_session}


def notes(path: Path) -> list[str]:
    with closing(sqlite3.connect(path)) as connection:
        return [note for (note,) in connection.execute("SELECT note FROM row")]


@pytest.mark.parametrize("opened", ASYNC.values(), ids=ASYNC)
async def test_when_a_transaction_commits_then_its_messages_are_sent_once(
    path: Path, opened: AsyncOpened
) -> None:
    gateway, outbox = RecordingGateway(), SqliteOutbox(path)
    app = an_app(gateway, outbox)

    async with app, relaying(app):
        async with opened(path) as transaction:
            await app.post(Order(number=1), transaction=transaction)
            await app.post_all([Order(number=2), Order(number=3)], transaction=transaction)
            assert gateway.sent == []

        await until(lambda: len(gateway.sent) >= 3)
        await until_empty(outbox)

    assert gateway.numbers() == [1, 2, 3]
    assert notes(path) == ["mine"]


@pytest.mark.parametrize("opened", ASYNC.values(), ids=ASYNC)
async def test_when_a_transaction_is_rolled_back_then_its_message_is_never_sent(
    path: Path, opened: AsyncOpened
) -> None:
    gateway = RecordingGateway()
    app = an_app(gateway, SqliteOutbox(path))

    async with app:
        with suppress(RolledBack):
            async with opened(path) as transaction:
                await app.post(Order(number=1), transaction=transaction)
                raise RolledBack
        async with opened(path) as transaction:
            await app.post(Order(number=2), transaction=transaction)
    await relay_all(app)

    assert gateway.numbers() == [2]


@pytest.mark.parametrize("opened", BLOCKING.values(), ids=BLOCKING)
def test_when_a_blocking_transaction_ends_then_its_messages_are_sent_or_not(
    path: Path, opened: Opened
) -> None:
    gateway = RecordingGateway()
    app = an_app(gateway, SqliteOutbox(path))

    with BlockingApp(app) as blocking:
        with suppress(RolledBack), opened(path) as transaction:
            blocking.post(Order(number=1), transaction=transaction)
            raise RolledBack
        with opened(path) as transaction:
            blocking.post(Order(number=2), transaction=transaction)
            blocking.post_all([Order(number=3), Order(number=4)], transaction=transaction)
    asyncio.run(relay_all(app))

    assert gateway.numbers() == [2, 3, 4]
    assert notes(path) == ["mine"]


async def test_when_an_asynchronous_connection_commits_each_statement_then_it_is_refused(
    path: Path,
) -> None:
    app = an_app(RecordingGateway(), outbox := SqliteOutbox(path))

    async with app, aiosqlite.connect(path, isolation_level=None) as connection:
        with pytest.raises(ConfigurationError, match="autocommit"):
            await app.post(Order(number=1), transaction=connection)
        assert await outbox.stats() == []


def test_when_a_connection_commits_each_statement_then_it_is_refused(path: Path) -> None:
    engine = create_engine(f"sqlite:///{path}", isolation_level="AUTOCOMMIT")

    with (
        BlockingApp(an_app(RecordingGateway(), SqliteOutbox(path))) as app,
        closing(sqlite3.connect(path, isolation_level=None)) as own,
        engine.connect() as through_sqlalchemy,
    ):
        for each in (own, through_sqlalchemy):
            with pytest.raises(ConfigurationError, match="autocommit"):
                app.post(Order(number=1), transaction=each)
    engine.dispose()


async def test_when_an_asynchronous_transaction_is_given_to_a_blocking_app_then_it_is_refused(
    path: Path,
) -> None:
    def post(connection: object) -> None:
        with BlockingApp(an_app(RecordingGateway(), SqliteOutbox(path))) as app:
            app.post(Order(number=1), transaction=connection)

    async with aiosqlite.connect(path) as connection:
        with pytest.raises(ConfigurationError, match=r"App\.post"):
            await asyncio.to_thread(post, connection)


async def test_when_there_is_no_outbox_then_a_transaction_is_refused_with_the_remedy() -> None:
    async with an_app(RecordingGateway(), None) as app:
        with pytest.raises(ConfigurationError, match="App\\(outbox="):
            await app.post(Order(number=1), transaction=object())


async def test_when_an_object_is_no_transaction_then_the_error_says_what_is_one(
    path: Path,
) -> None:
    async with an_app(RecordingGateway(), SqliteOutbox(path)) as app:
        with pytest.raises(ConfigurationError, match="psycopg"):
            await app.post(Order(number=1), transaction=object())
        with pytest.raises(ConfigurationError, match="psycopg"):
            await app.post(Order(number=1), transaction="an alias")
