"""Django's transactions: `atomic`, savepoints, and the thread that they belong to."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from pump.blocking import BlockingApp
from pump.errors import ConfigurationError
from tests.outbox.conftest import PostgresPlace
from tests.outbox.rig import Order, RecordingGateway, an_app, relay_all

pytestmark = pytest.mark.broker


@pytest.fixture(scope="module")
def django_db() -> Any:
    """Django, set up once: its settings are those of a process."""
    import django
    from django.conf import settings

    if not settings.configured:
        settings.configure(DATABASES={})
        django.setup()
    from django import db

    return db


@pytest.fixture
def database(django_db: Any, postgres_place: PostgresPlace) -> Iterator[Any]:
    """Django's connection to the test's database."""
    from django.db.utils import ConnectionHandler

    handler = ConnectionHandler(
        {
            "default": {
                "ENGINE": "django.db.backends.postgresql",
                "NAME": "postgres",
                "USER": "postgres",
                "HOST": "127.0.0.1",
                "PORT": postgres_place.server.port,
            }
        }
    )
    before, django_db.connections = django_db.connections, handler
    django_db.transaction.get_connection.__globals__["connections"] = handler
    yield django_db
    handler["default"].close()
    django_db.connections = before
    django_db.transaction.get_connection.__globals__["connections"] = before


class RolledBack(Exception):
    """The user's own error."""


def test_when_atomic_ends_then_its_messages_are_sent_or_not(
    database: Any, postgres_place: PostgresPlace
) -> None:
    gateway = RecordingGateway()
    app = an_app(gateway, postgres_place.outbox())
    atomic, connection = database.transaction.atomic, database.connections["default"]
    committed: list[bool] = []

    def insert() -> None:
        with connection.cursor() as cursor:
            cursor.execute(postgres_place.insert())

    with BlockingApp(app) as blocking:
        with suppress(RolledBack), atomic():
            insert()
            blocking.post(Order(number=1), transaction=connection)
            raise RolledBack
        with atomic():
            insert()
            blocking.post(Order(number=2), transaction=connection)
            database.transaction.on_commit(lambda: committed.append(True))
            with suppress(RolledBack), atomic():
                blocking.post(Order(number=3), transaction=connection)
                raise RolledBack
            with atomic():
                blocking.post_all([Order(number=4), Order(number=5)], transaction="default")
    asyncio.run(relay_all(app))

    assert gateway.numbers() == [2, 4, 5]
    assert postgres_place.notes() == ["mine"]
    assert committed == [True]


def test_when_there_is_no_atomic_then_it_is_refused(
    database: Any, postgres_place: PostgresPlace
) -> None:
    with (
        BlockingApp(an_app(RecordingGateway(), postgres_place.outbox())) as blocking,
        pytest.raises(ConfigurationError, match="atomic"),
    ):
        blocking.post(Order(number=1), transaction=database.connections["default"])


async def test_when_an_alias_is_none_of_djangos_then_the_error_names_those_there_are(
    database: Any, postgres_place: PostgresPlace
) -> None:
    async with an_app(RecordingGateway(), postgres_place.outbox()) as app:
        with pytest.raises(ConfigurationError, match="only default"):
            await app.post(Order(number=1), transaction="replica")
