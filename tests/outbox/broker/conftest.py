"""A schema of the test's own on this process's server, and a table of the user's in it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import attrs
import psycopg
import pytest

from pump.message import new_id
from pump.outbox import PostgresOutbox
from tests.brokers.postgres_server import PostgresServer


@attrs.frozen
class Place:
    """One schema, with the table `row` of the user's."""

    server: PostgresServer
    schema: str = attrs.field(factory=lambda: f"s_{new_id()[:8]}{new_id()[-6:]}")

    def url(self, *, port: int | None = None, user: str = "") -> str:
        """Of an outbox in the schema."""
        return f"{self.server.url(port=port, user=user)}?schema={self.schema}"

    def outbox(self, *, port: int | None = None, user: str = "", **fields: Any) -> PostgresOutbox:
        """An outbox in the schema."""
        return PostgresOutbox(self.url(port=port, user=user), **fields)

    def execute(self, sql: str, arguments: Sequence[object] | None = None) -> list[Any]:
        """Ask the server directly; `@.` stands for the schema."""
        with psycopg.connect(self.server.url(), autocommit=True) as connection:
            cursor = connection.execute(sql.replace("@.", f'"{self.schema}".').encode(), arguments)
            return cursor.fetchall() if cursor.description is not None else []

    def notes(self) -> list[str]:
        """What the user's own table holds."""
        return [note for (note,) in self.execute("SELECT note FROM @.row ORDER BY note")]

    def insert(self) -> str:
        """The statement that adds one of the user's rows."""
        return f"INSERT INTO \"{self.schema}\".row VALUES ('mine')"


@pytest.fixture
def place(postgres: PostgresServer) -> Iterator[Place]:
    place = Place(postgres)
    place.execute(f'CREATE SCHEMA "{place.schema}"')
    place.execute("CREATE TABLE @.row (note text)")
    yield place
    place.execute(f'DROP SCHEMA IF EXISTS "{place.schema}" CASCADE')
