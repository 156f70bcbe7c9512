"""Nonces in PostgreSQL: a copy of a message is refused on whichever machine it arrives."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final, NamedTuple, Self

from ..errors import PumpError
from ..postgres.arrays import doubles, octets
from ..postgres.schema import Component
from ..postgres.settings import PostgresSettings
from ..subscription import MakeChannels
from ..tasks import BackgroundTasks
from .inbox_rows import PRUNE_EVERY, key_bytes
from .nonces import NonceMark
from .postgres_tables import PostgresTables, SharedCalls, settings_from

NONCES: Final = Component(
    version_table="nonces_version",
    version=1,
    upgrade=lambda found: (
        """
CREATE TABLE @.nonces_version (number int NOT NULL);
INSERT INTO @.nonces_version VALUES (0);
CREATE TABLE @.nonces (
    nonce bytea PRIMARY KEY,
    holder bytea NOT NULL,
    is_done boolean NOT NULL,
    until_s float8 NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0.05);
CREATE INDEX nonces_expiry ON @.nonces (until_s);
"""
    ),
)
_CLAIM: Final = """
INSERT INTO @.nonces AS n (nonce, holder, is_done, until_s)
SELECT nonce, holder, false, until_s FROM unnest(%b::bytea[], %b::bytea[], %b::float8[])
    AS a (nonce, holder, until_s)
ORDER BY nonce
ON CONFLICT (nonce) DO UPDATE SET holder = excluded.holder, is_done = false,
    until_s = excluded.until_s
WHERE n.until_s <= %b OR (NOT n.is_done AND n.holder = excluded.holder)
RETURNING nonce
"""
_MARK: Final = """
WITH asked AS MATERIALIZED (
    SELECT * FROM unnest(%b::bytea[], %b::bytea[], %b::float8[]) AS a (nonce, holder, until_s)
), released AS (
    DELETE FROM @.nonces n USING asked a
    WHERE a.until_s IS NULL AND n.nonce = a.nonce AND n.holder = a.holder AND NOT n.is_done
)
INSERT INTO @.nonces (nonce, holder, is_done, until_s)
SELECT nonce, holder, true, until_s FROM asked WHERE until_s IS NOT NULL ORDER BY nonce
ON CONFLICT (nonce) DO UPDATE SET holder = excluded.holder, is_done = true,
    until_s = excluded.until_s
"""
_PRUNE: Final = """
DELETE FROM @.nonces WHERE nonce IN (
    SELECT nonce FROM @.nonces WHERE until_s <= %b ORDER BY until_s LIMIT %b FOR UPDATE SKIP LOCKED
)
"""


class _NonceClaim(NamedTuple):
    nonce: bytes
    holder: bytes
    now_s: float
    until_s: float


class PostgresNonces:
    """A `NonceStore` in the table `nonces` of the database at this URL, opened by the first use.

    A claim is committed before its message is handled. Nonces whose time is over are removed as new
    ones come. Times are the caller's: machines whose clocks are apart forget a nonce that much
    earlier or later, which `Encryption(clock_tolerance=…)` allows for. For one event loop at a
    time. Survives pickling: the copy connects for itself.
    """

    def __init__(
        self, where: str | PostgresSettings, *, make_tables: MakeChannels = MakeChannels.CREATE
    ) -> None:
        self._settings = settings_from(where)
        self._make_tables = MakeChannels(make_tables)
        self._tables = PostgresTables(self._settings, NONCES, self._make_tables)
        self._claims = SharedCalls(self._claim, lambda claim: claim.nonce)
        self._tasks = BackgroundTasks("nonces")
        self._until_prune = 0

    def __repr__(self) -> str:
        return f"PostgresNonces({self._settings.target!r}, schema={self._settings.schema!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(PostgresNonces, self._settings, make_tables=self._make_tables), ()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def claim(self, nonce: bytes, *, holder: str, now_s: float, until_s: float) -> bool:
        self._until_prune -= 1
        if self._until_prune < 0 and not self._tasks:
            self._until_prune = PRUNE_EVERY
            self._tasks.start(self._prune(now_s), "prune")
        return await self._claims.call(_NonceClaim(nonce, key_bytes(holder), now_s, until_s))

    async def mark(self, marks: Sequence[NonceMark]) -> None:
        # Of each nonce one row, or PostgreSQL refuses them; a release undoes no completion.
        done = {each.nonce: each for each in marks if each.is_done}
        released = [each for each in marks if not each.is_done and each.nonce not in done]
        chosen = [*(done[nonce] for nonce in sorted(done)), *released]
        if not chosen:
            return
        await self._tables.call(
            self._tables.statement(_MARK, "mark"),
            octets([each.nonce for each in chosen]),
            octets([key_bytes(each.holder) for each in chosen]),
            doubles([each.until_s if each.is_done else None for each in chosen]),
        )

    async def aclose(self) -> None:
        await self._tasks.finish()
        await self._tables.aclose()

    async def _claim(self, claims: Sequence[_NonceClaim]) -> Sequence[bool]:
        # By the earliest of their clocks: in doubt a nonce is not free yet.
        rows = await self._tables.call(
            self._tables.statement(_CLAIM, "claim"),
            octets([each.nonce for each in claims]),
            octets([each.holder for each in claims]),
            doubles([each.until_s for each in claims]),
            min(each.now_s for each in claims),
        )
        taken = {bytes(nonce) for [nonce] in rows}
        return [each.nonce in taken for each in claims]

    async def _prune(self, now_s: float) -> None:
        with suppress(PumpError):
            prune = self._tables.statement(_PRUNE, "prune")
            await self._tables.call(prune, now_s, 4 * PRUNE_EVERY)
