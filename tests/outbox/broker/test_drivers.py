"""Every library's transaction: committed, its message is sent once; rolled back, never."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import Any

import asyncpg
import psycopg
import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from pump.errors import ConfigurationError
from tests.outbox.conftest import PostgresPlace as Place
from tests.outbox.rig import Order, RecordingGateway, an_app, relaying, until, until_empty

pytestmark = pytest.mark.broker


class RolledBack(Exception):
    """The user's own error."""


Opened = Callable[[Place], AbstractAsyncContextManager[Any]]
"""A transaction with a row of the user's in it, committed at the end of the block."""


@asynccontextmanager
async def _async_session(place: Place, driver: str) -> AsyncIterator[Any]:
    engine = create_async_engine(place.server.url().replace("postgres:", f"postgresql+{driver}:"))
    try:
        async with AsyncSession(engine) as session, session.begin():
            await session.execute(text(place.insert()))
            yield session
    finally:
        await engine.dispose()


@asynccontextmanager
async def _async_connection(place: Place, driver: str) -> AsyncIterator[Any]:
    engine = create_async_engine(place.server.url().replace("postgres:", f"postgresql+{driver}:"))
    try:
        async with engine.begin() as connection:
            await connection.execute(text(place.insert()))
            yield connection
    finally:
        await engine.dispose()


@asynccontextmanager
async def _session(place: Place) -> AsyncIterator[Any]:
    engine = create_engine(place.server.url().replace("postgres:", "postgresql+psycopg:"))
    try:
        with Session(engine) as session, session.begin():
            session.execute(text(place.insert()))
            yield session
    finally:
        engine.dispose()


@asynccontextmanager
async def _connection(place: Place) -> AsyncIterator[Any]:
    engine = create_engine(place.server.url().replace("postgres:", "postgresql+psycopg:"))
    try:
        with engine.begin() as connection:
            connection.execute(text(place.insert()))
            yield connection
    finally:
        engine.dispose()


@asynccontextmanager
async def _psycopg(place: Place) -> AsyncIterator[Any]:
    with psycopg.connect(place.server.url()) as connection:
        connection.execute(place.insert().encode())
        yield connection


@asynccontextmanager
async def _async_psycopg(place: Place) -> AsyncIterator[Any]:
    async with await psycopg.AsyncConnection.connect(place.server.url()) as connection:
        await connection.execute(place.insert().encode())
        yield connection


@asynccontextmanager
async def _psycopg_block(place: Place) -> AsyncIterator[Any]:
    connection = await psycopg.AsyncConnection.connect(place.server.url(), autocommit=True)
    async with connection, connection.transaction():
        await connection.execute(place.insert().encode())
        yield connection


@asynccontextmanager
async def _asyncpg(place: Place) -> AsyncIterator[Any]:
    connection = await asyncpg.connect(place.server.url())
    try:
        async with connection.transaction():
            await connection.execute(place.insert())
            yield connection
    finally:
        await connection.close()


@asynccontextmanager
async def _asyncpg_pool(place: Place) -> AsyncIterator[Any]:
    async with (
        asyncpg.create_pool(place.server.url(), min_size=1, max_size=1) as pool,
        pool.acquire() as connection,
        connection.transaction(),
    ):
        await connection.execute(place.insert())
        yield connection


TRANSACTIONS: dict[str, Opened] = {
    "AsyncSession on asyncpg": lambda place: _async_session(place, "asyncpg"),
    "AsyncSession on psycopg": lambda place: _async_session(place, "psycopg"),
    "AsyncConnection on asyncpg": lambda place: _async_connection(place, "asyncpg"),
    "AsyncConnection on psycopg": lambda place: _async_connection(place, "psycopg"),
    "Session": _session,
    "Connection": _connection,
    "psycopg": _psycopg,
    "psycopg async": _async_psycopg,
    "psycopg transaction()": _psycopg_block,
    "asyncpg": _asyncpg,
    "asyncpg pool": _asyncpg_pool,
}


@pytest.mark.parametrize("opened", TRANSACTIONS.values(), ids=TRANSACTIONS)
async def test_when_a_transaction_commits_then_its_messages_are_sent_once(
    postgres_place: Place, opened: Opened
) -> None:
    """R79."""
    gateway, outbox = RecordingGateway(), postgres_place.outbox()
    app = an_app(gateway, outbox)

    async with app, relaying(app):
        async with opened(postgres_place) as transaction:
            await app.post(Order(number=1), transaction=transaction)
            await app.post_all([Order(number=2), Order(number=3)], transaction=transaction)
            assert gateway.sent == []

        await until(lambda: len(gateway.sent) >= 3)
        await until_empty(outbox)

    assert gateway.numbers() == [1, 2, 3]
    assert postgres_place.notes() == ["mine"]


@pytest.mark.parametrize("opened", TRANSACTIONS.values(), ids=TRANSACTIONS)
async def test_when_a_transaction_is_rolled_back_then_its_message_is_never_sent(
    postgres_place: Place, opened: Opened
) -> None:
    """R79."""
    gateway, outbox = RecordingGateway(), postgres_place.outbox()
    app = an_app(gateway, outbox)

    async with app, relaying(app):
        with suppress(RolledBack):
            async with opened(postgres_place) as transaction:
                await app.post(Order(number=1), transaction=transaction)
                raise RolledBack
        async with opened(postgres_place) as transaction:
            await app.post(Order(number=2), transaction=transaction)
        await until(lambda: len(gateway.sent) >= 1)
        await until_empty(outbox)

    assert gateway.numbers() == [2]


async def test_when_a_connection_commits_each_statement_then_it_is_refused(
    postgres_place: Place,
) -> None:
    """R79."""
    url = postgres_place.server.url()
    engine = create_async_engine(
        url.replace("postgres:", "postgresql+asyncpg:"), isolation_level="AUTOCOMMIT"
    )
    plain = await asyncpg.connect(url)
    own = await psycopg.AsyncConnection.connect(url, autocommit=True)
    gateway, outbox = RecordingGateway(), postgres_place.outbox()
    app = an_app(gateway, outbox)

    async with app, engine.connect() as connection:
        for each in (plain, own, connection):
            with pytest.raises(ConfigurationError, match="autocommit"):
                await app.post(Order(number=1), transaction=each)
        assert await outbox.stats() == []

    await plain.close()
    await own.close()
    await engine.dispose()
