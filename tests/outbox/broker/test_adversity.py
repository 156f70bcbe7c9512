"""Transactions as users have them: with savepoints, and open for long while others commit."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import Any

import asyncpg
import attrs
import psycopg
import pytest
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

from tests.outbox.conftest import PostgresPlace
from tests.outbox.rig import Order, RecordingGateway, an_app, relaying, until, until_empty

pytestmark = pytest.mark.broker


class RolledBack(Exception):
    """The user's own error."""


@attrs.frozen
class Open:
    """A transaction, and what makes a savepoint in it."""

    handle: Any
    nested: Callable[[], AbstractAsyncContextManager[Any]]


@asynccontextmanager
async def _psycopg(url: str) -> AsyncIterator[Open]:
    async with await psycopg.AsyncConnection.connect(url) as connection, connection.transaction():
        yield Open(connection, connection.transaction)


@asynccontextmanager
async def _asyncpg(url: str) -> AsyncIterator[Open]:
    connection = await asyncpg.connect(url)
    try:
        async with connection.transaction():
            yield Open(connection, connection.transaction)
    finally:
        await connection.close()


@asynccontextmanager
async def _sqlalchemy(url: str) -> AsyncIterator[Open]:
    engine = create_async_engine(url.replace("postgres:", "postgresql+psycopg:"))
    try:
        async with AsyncSession(engine) as session, session.begin():
            yield Open(session, session.begin_nested)
    finally:
        await engine.dispose()


@pytest.mark.parametrize("opened", [_psycopg, _asyncpg, _sqlalchemy])
async def test_when_a_savepoint_is_rolled_back_then_only_its_messages_are_not_sent(
    postgres_place: PostgresPlace, opened: Callable[[str], AbstractAsyncContextManager[Open]]
) -> None:
    gateway, outbox = RecordingGateway(), postgres_place.outbox()
    app = an_app(gateway, outbox)

    async with app, relaying(app):
        async with opened(postgres_place.server.url()) as transaction:
            await app.post(Order(number=1), transaction=transaction.handle)
            with suppress(RolledBack):
                async with transaction.nested():
                    await app.post(Order(number=2), transaction=transaction.handle)
                    raise RolledBack
            async with transaction.nested():
                await app.post(Order(number=3), transaction=transaction.handle)
        await until(lambda: len(gateway.sent) >= 2)
        await until_empty(outbox)

    assert gateway.numbers() == [1, 3]


async def test_when_a_transaction_is_open_for_long_then_it_holds_up_none_and_is_sent_when_it_ends(
    postgres_place: PostgresPlace,
) -> None:
    """Its rows have places before those that are long gone."""
    url = postgres_place.server.url()
    gateway, outbox = RecordingGateway(), postgres_place.outbox()
    app = an_app(gateway, outbox)

    async with app, relaying(app):
        async with await psycopg.AsyncConnection.connect(url) as old:
            await app.post(Order(number=0), transaction=old, group="g")
            for number in range(1, 4):
                async with await psycopg.AsyncConnection.connect(url) as new:
                    await app.post(Order(number=number), transaction=new, group="g")
                await until(lambda sent=number: len(gateway.sent) == sent)  # type: ignore[misc]
            await until_empty(outbox)
        await until(lambda: len(gateway.sent) == 4)
        await until_empty(outbox)

    assert gateway.numbers() == [1, 2, 3, 0]
