"""Nonces in one SQLite file, shared by the processes of a machine."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any, Self

import aiosqlite
import attrs

from ..errors import ConfigurationError
from .nonces import NonceMark
from .opening import open_database, to_the_end, translated

_PRUNE_EVERY = 256
_SCHEMA = """
CREATE TABLE IF NOT EXISTS pump_nonces (
    nonce BLOB PRIMARY KEY,
    holder TEXT NOT NULL,
    is_done INTEGER NOT NULL,
    until_s REAL NOT NULL
) WITHOUT ROWID
"""
_INDEX = "CREATE INDEX IF NOT EXISTS pump_nonces_expiry ON pump_nonces (until_s)"
_CLAIM = """
INSERT INTO pump_nonces (nonce, holder, is_done, until_s) VALUES (?, ?, 0, ?)
ON CONFLICT (nonce) DO UPDATE SET
    holder = excluded.holder, is_done = 0, until_s = excluded.until_s
WHERE pump_nonces.until_s <= ?
    OR (pump_nonces.is_done = 0 AND pump_nonces.holder = excluded.holder)
"""
_COMPLETE = """
INSERT INTO pump_nonces (nonce, holder, is_done, until_s) VALUES (?, ?, 1, ?)
ON CONFLICT (nonce) DO UPDATE SET
    holder = excluded.holder, is_done = 1, until_s = excluded.until_s
"""
_RELEASE = "DELETE FROM pump_nonces WHERE nonce = ? AND holder = ? AND is_done = 0"
_PRUNE = """
DELETE FROM pump_nonces WHERE nonce IN (
    SELECT nonce FROM pump_nonces WHERE until_s <= ? ORDER BY until_s LIMIT ?)
"""


@attrs.frozen(eq=False)
class _Connections:
    """Two, because a mark is flushed to the disk, and with it every claim before it."""

    claims: aiosqlite.Connection
    marks: aiosqlite.Connection

    async def close(self) -> None:
        await self.claims.close()
        await self.marks.close()


class SqliteNonces:
    """A `NonceStore` in the SQLite file at `path`, opened by the first use.

    The table is `pump_nonces`; the file is put into WAL mode. Nonces whose time is over are
    removed as new ones come. A claim survives the death of its process; after a power failure
    the claims since the last mark may be gone. For one event loop at a time. Survives pickling:
    the copy opens the file for itself.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = os.fspath(path)
        if not self._path or self._path == ":memory:":
            raise ConfigurationError(
                "SqliteNonces.path", self._path, "name a file, or use MemoryNonces()"
            )
        self._connections: _Connections | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._lock = asyncio.Lock()
        self._until_prune = 0

    def __repr__(self) -> str:
        return f"SqliteNonces({self._path!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(SqliteNonces, self._path), ()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def claim(self, nonce: bytes, *, holder: str, now_s: float, until_s: float) -> bool:
        async with self._opened() as files:
            with translated(self._path):
                await self._prune_now_and_then(files.claims, now_s)
                # One statement, so of two processes one is given it.
                taken = await files.claims.execute(_CLAIM, (nonce, holder, until_s, now_s))
            return taken.rowcount == 1

    async def mark(self, marks: Sequence[NonceMark]) -> None:
        done = [(each.nonce, each.holder, each.until_s) for each in marks if each.is_done]
        released = [(each.nonce, each.holder) for each in marks if not each.is_done]
        async with self._opened() as files:
            with translated(self._path):
                await _write(files.marks, done, released)

    async def aclose(self) -> None:
        async with self._alone():
            files, self._connections = self._connections, None
            if files is not None:
                await files.close()

    @asynccontextmanager
    async def _opened(self) -> AsyncIterator[_Connections]:
        async with self._alone():
            files = self._connections
            yield files if files is not None else await to_the_end(self._open())

    def _alone(self) -> asyncio.Lock:
        # A lock belongs to one loop, and a module's store may outlive several.
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            self._loop, self._lock = loop, asyncio.Lock()
        return self._lock

    async def _open(self) -> _Connections:
        marks = await open_database(self._path, synchronous="FULL")
        try:
            with translated(self._path):
                await marks.execute(_SCHEMA)
                await marks.execute(_INDEX)
            claims = await open_database(self._path, synchronous="NORMAL")
        except BaseException:
            await marks.close()
            raise
        self._connections = _Connections(claims, marks)
        return self._connections

    async def _prune_now_and_then(self, claims: aiosqlite.Connection, now_s: float) -> None:
        self._until_prune -= 1
        if self._until_prune < 0:
            self._until_prune = _PRUNE_EVERY
            # More than can have come since the last time, so that the table shrinks again.
            await claims.execute(_PRUNE, (now_s, 4 * _PRUNE_EVERY))


async def _write(
    marks: aiosqlite.Connection,
    done: Iterable[tuple[bytes, str, float]],
    released: Iterable[tuple[bytes, str]],
) -> None:
    try:
        await marks.execute("BEGIN IMMEDIATE")
        await marks.executemany(_COMPLETE, done)
        await marks.executemany(_RELEASE, released)
        await marks.execute("COMMIT")
    except BaseException:
        # Also after a cancelled BEGIN or COMMIT, which the thread still carries out.
        with suppress(sqlite3.Error):
            await marks.execute("ROLLBACK")
        raise
