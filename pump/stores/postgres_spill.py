"""A spill in PostgreSQL: one place for what the machines of a fleet could not route."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final

from ..postgres.arrays import octets
from ..postgres.schema import Component
from ..postgres.settings import PostgresSettings
from ..subscription import MakeChannels
from ..tasks import BackgroundTasks
from .inbox_rows import TimeOf, check_time_of
from .packing import pack_checked
from .postgres_tables import NOW_S, PostgresTables, settings_from
from .spill import SpilledMessage, readable

SPILL: Final = Component(
    version_table="spill_version",
    version=1,
    upgrade=lambda found: (
        """
CREATE TABLE @.spill_version (number int NOT NULL);
INSERT INTO @.spill_version VALUES (0);
CREATE TABLE @.spilled (
    id bytea PRIMARY KEY,
    destination bytea NOT NULL,
    spilled_at_s float8 NOT NULL,
    claimed_until_s float8 NOT NULL DEFAULT 0,
    message bytea NOT NULL
);
CREATE INDEX spilled_order ON @.spilled (spilled_at_s, id);
"""
    ),
)
_PUT: Final = """
INSERT INTO @.spilled (id, destination, spilled_at_s, message) VALUES (%b, %b, %b, %b)
ON CONFLICT (id) DO NOTHING
"""
# One that seems to last for longer than the lease was made before the clock was set back.
_BOUND: Final = f"""
WITH moment AS MATERIALIZED (SELECT coalesce(%b, {NOW_S}) + %b AS ends_at_s)
UPDATE @.spilled SET claimed_until_s = ends_at_s FROM moment WHERE claimed_until_s > ends_at_s
"""
_CLAIM: Final = f"""
WITH moment AS MATERIALIZED (SELECT coalesce(%b, {NOW_S}) AS now_s), oldest AS MATERIALIZED (
    SELECT id, now_s FROM @.spilled, moment WHERE claimed_until_s <= now_s
    ORDER BY spilled_at_s, id LIMIT %b FOR UPDATE OF spilled SKIP LOCKED
)
UPDATE @.spilled s SET claimed_until_s = now_s + %b FROM oldest o WHERE s.id = o.id
RETURNING s.id, destination, spilled_at_s, message
"""
_REMOVE: Final = "DELETE FROM @.spilled WHERE id = ANY(%b::bytea[])"
_ALL: Final = """
SELECT id, destination, spilled_at_s, message FROM @.spilled ORDER BY spilled_at_s, id
"""
_COUNT: Final = "SELECT count(*) FROM @.spilled"


class PostgresSpill:
    """A spill in the table `spilled` of the database at this URL, shared by all machines.

    A message is committed when `put` returns. Time is the server's; `time_of="caller"` takes the
    caller's, for tests on a virtual clock. Spilling is rare: the connections are made for it, and
    closed with the last operation that is under way.
    """

    def __init__(
        self,
        where: str | PostgresSettings,
        *,
        make_tables: MakeChannels = MakeChannels.CREATE,
        time_of: TimeOf = "server",
    ) -> None:
        check_time_of("PostgresSpill.time_of", time_of)
        self._settings = settings_from(where)
        self._make_tables = MakeChannels(make_tables)
        self._time_of = time_of
        self._tables = PostgresTables(self._settings, SPILL, self._make_tables)
        self._tasks = BackgroundTasks("spill")
        self._user_count = 0

    def __repr__(self) -> str:
        return f"PostgresSpill({self._settings.target!r}, schema={self._settings.schema!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        make = partial(
            PostgresSpill, self._settings, make_tables=self._make_tables, time_of=self._time_of
        )
        return make, ()

    async def put(self, spilled: SpilledMessage) -> None:
        packed = pack_checked(spilled.message)
        id_, destination = _octets(spilled.id), _octets(spilled.destination)
        await self._run((_PUT, id_, destination, spilled.spilled_at_s, packed))

    async def claim(self, *, now_s: float, lease_s: float, most: int) -> Sequence[SpilledMessage]:
        moment = now_s if self._time_of == "caller" else None
        rows = await self._run((_BOUND, moment, lease_s), (_CLAIM, moment, most, lease_s))
        return sorted(_readable(rows), key=lambda each: (each.spilled_at_s, each.id))

    async def remove(self, ids: Sequence[str]) -> None:
        await self._run((_REMOVE, octets([_octets(id_) for id_ in ids])))

    async def all(self) -> Sequence[SpilledMessage]:
        return _readable(await self._run((_ALL,)))

    async def count(self) -> int:
        [[count]] = await self._run((_COUNT,))
        return int(count)

    async def _run(self, *calls: tuple[Any, ...]) -> list[Sequence[Any]]:
        # As to a file: when the caller is cancelled, a write that was begun still ends.
        return await asyncio.shield(self._tasks.start(self._perform(calls), "spill"))

    async def _perform(self, calls: Sequence[tuple[Any, ...]]) -> list[Sequence[Any]]:
        rows: list[Sequence[Any]] = []
        async with self._in_use():
            for sql, *arguments in calls:
                statement = self._tables.statement(sql, "spill")
                rows = await self._tables.call(statement, *arguments)
        return rows

    @asynccontextmanager
    async def _in_use(self) -> AsyncIterator[None]:
        self._user_count += 1
        try:
            yield
        finally:
            self._user_count -= 1
            if not self._user_count:
                await self._tables.aclose()


def _octets(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _text(given: Any) -> str:
    return bytes(given).decode("utf-8", "surrogatepass")


def _readable(rows: Sequence[Sequence[Any]]) -> list[SpilledMessage]:
    return list(
        readable(
            (_text(id_), _text(destination), spilled_at_s, bytes(packed))
            for id_, destination, spilled_at_s, packed in rows
        )
    )
