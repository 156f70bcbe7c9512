"""PostgreSQL in virtual time: the function that has the time for all others is replaced by one that
reads it from a table, and a clock writes it there. All the rest is as in production.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg

from gateways.postgres import PostgresGateway, PostgresSettings
from gateways.postgres.schema import FUNCTIONS, TABLES, VERSION, script
from pump.clock import SYSTEM_CLOCK
from pump.postgres.schema import named
from pump.testing import VirtualClock
from pump.testing.virtual_clock import EPOCH_S

_LOOK_S = 0.0003
"""How often it looks, in real time, whether statements have ended that are under way; what it
decides does not depend on it.
"""
_CLOCK = """
CREATE TABLE @.clock (at timestamptz NOT NULL);
INSERT INTO @.clock VALUES (to_timestamp(0));
CREATE OR REPLACE FUNCTION @.now() RETURNS timestamptz LANGUAGE sql VOLATILE AS
    'SELECT at FROM @.clock';
"""
# Read here: a fixture runs on the event loop.
_MADE = (*map(script, TABLES), script(FUNCTIONS), _CLOCK)


class ServerClock(VirtualClock):
    """Time stands still while a statement is under way, and until what was told is heard."""

    def __init__(self, url: str, schema: str) -> None:
        self._connection = psycopg.connect(url, autocommit=True)
        self._schema = schema
        self._passed_s = 0.0
        self._gateways: list[CountedGateway] = []
        self._barriers = itertools.count(1)
        self._seen_count = 0
        self.awaited: list[Callable[[], bool]] = []
        """What must come true before time goes on."""
        super().__init__()

    @property
    def _elapsed_s(self) -> float:
        return self._passed_s

    @_elapsed_s.setter
    def _elapsed_s(self, elapsed_s: float) -> None:
        self._passed_s = elapsed_s
        sql = named("UPDATE @.clock SET at = to_timestamp(%s)", self._schema)
        self._connection.execute(sql.encode(), [EPOCH_S + elapsed_s])

    def gateway(self, settings: PostgresSettings) -> CountedGateway:
        """A gateway, unopened, whose statements hold time."""
        gateway = CountedGateway(settings, self)
        self._gateways.append(gateway)
        return gateway

    def close(self) -> None:
        """Let go of the connection."""
        self._connection.close()

    async def _outwait_others(self) -> bool:
        self.awaited = [each for each in self.awaited if not each()]
        if self.awaited or any(each.is_busy for each in self._gateways):
            await SYSTEM_CLOCK.sleep(_LOOK_S)
            return True
        statement_count = sum(each.statement_count for each in self._gateways)
        if statement_count == self._seen_count:
            return False
        self._seen_count = statement_count
        barrier = next(self._barriers)
        self._connection.execute("SELECT pg_notify(%s, %s)", [self._schema, f"0 {barrier}"])
        while any(each.has_not_heard(barrier) for each in self._gateways):
            await SYSTEM_CLOCK.sleep(_LOOK_S)
        return True


class CountedGateway(PostgresGateway):
    """A gateway that shows what it has under way, and counts."""

    heard = 0

    @property
    def is_busy(self) -> bool:
        return self._database.under_way > 0

    @property
    def statement_count(self) -> int:
        return self._database.counts.total()

    @property
    def settle_count(self) -> int:
        """How many statements settling has taken so far."""
        return self._database.counts["settle"]

    @property
    def is_listening(self) -> bool:
        return self._listener.is_listening

    def has_not_heard(self, barrier: int) -> bool:
        """Several tasks may wait for time to stand still, each with a barrier of its own."""
        return self.is_listening and self.heard < barrier

    def _told(self, payload: str) -> None:
        if payload.startswith("0 "):
            self.heard = int(payload[2:])
        super()._told(payload)


@contextmanager
def schema_in_virtual_time(url: str, schema: str) -> Iterator[ServerClock]:
    """A schema of the test's own, and the clock that moves its time; both gone at the end."""
    with psycopg.connect(url, autocommit=True) as connection:
        for each in (f'CREATE SCHEMA "{schema}"', *_MADE):
            connection.execute(named(each, schema).encode())
        connection.execute(f'UPDATE "{schema}".version SET number = {VERSION}'.encode())
        clock = ServerClock(url, schema)
        try:
            yield clock
        finally:
            clock.close()
            connection.execute(f'DROP SCHEMA "{schema}" CASCADE'.encode())


def raw_insert(url: str, schema: str, queue: str, body: bytes) -> Any:
    """Send as a program would that knows our functions and nothing of our envelopes."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(
            named("SELECT @.send(%s, 0, ARRAY[NULL], ARRAY[%b])", schema).encode(), [queue, body]
        )
