"""Claims in a SQLite file that processes of a machine share: what inbox and nonces have in common.

A key is claimed, and marked as done or released later. The file is opened by the first use; rows
whose time is over are removed as new ones come.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

import aiosqlite
import attrs

from ..errors import ConfigurationError
from ..tasks import to_the_end
from .opening import open_database, translated

_PRUNE_EVERY = 256


@attrs.frozen(eq=False)
class ClaimConnections:
    """Two, because a claim may die with the machine, as its handler does, and a mark may not: it is
    flushed to the disk, and with it every claim before it.
    """

    claims: aiosqlite.Connection
    marks: aiosqlite.Connection


class ClaimsFile:
    """The file of one store. One use at a time, and one event loop at a time."""

    def __init__(
        self,
        path: str,
        *,
        create: Callable[[aiosqlite.Connection], Awaitable[object]],
        prune: str,
    ) -> None:
        """`create` makes the table if it is missing; `prune` is the statement that removes rows
        whose time is over: before which moment, and how many at most.
        """
        self.path = path
        self._create = create
        self._prune = prune
        self._connections: ClaimConnections | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._lock = asyncio.Lock()
        self._until_prune = 0

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[ClaimConnections]:
        """Its connections, for one caller at a time."""
        async with self._alone():
            files = self._connections
            yield files if files is not None else await to_the_end(self._open())

    async def aclose(self) -> None:
        """Let go of the file; a later use opens it again."""
        async with self._alone():
            files, self._connections = self._connections, None
            if files is not None:
                await files.claims.close()
                await files.marks.close()

    async def prune_now_and_then(self, claims: aiosqlite.Connection, now_s: float) -> None:
        """Before a claim: so few at a time that no caller waits long."""
        self._until_prune -= 1
        if self._until_prune < 0:
            self._until_prune = _PRUNE_EVERY
            with translated(self.path):
                # More than can have come since the last time, so that the table shrinks again.
                await claims.execute(self._prune, (now_s, 4 * _PRUNE_EVERY))

    def _alone(self) -> asyncio.Lock:
        # A lock belongs to one loop, and a module's store may outlive several.
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            self._loop, self._lock = loop, asyncio.Lock()
        return self._lock

    async def _open(self) -> ClaimConnections:
        marks = await open_database(self.path, synchronous="FULL")
        try:
            with translated(self.path):
                await self._create(marks)
            claims = await open_database(self.path, synchronous="NORMAL")
        except BaseException:
            await marks.close()
            raise
        self._connections = ClaimConnections(claims, marks)
        return self._connections


def path_of_a_file(path: str | os.PathLike[str], *, field: str, instead: str) -> str:
    """The path as text; `ConfigurationError` when it is none, naming what to use instead."""
    found = os.fspath(path)
    if not found or found == ":memory:":
        raise ConfigurationError(field, found, f"name a file, or use {instead}")
    return found


@asynccontextmanager
async def atomic(connection: aiosqlite.Connection, path: str) -> AsyncIterator[None]:
    """Commit what the block writes at its end, or nothing of it."""
    try:
        with translated(path):
            await connection.execute("BEGIN IMMEDIATE")
        yield
        with translated(path):
            await connection.execute("COMMIT")
    except BaseException:
        # Also after a cancelled BEGIN or COMMIT, which the thread still carries out.
        with suppress(sqlite3.Error):
            await connection.execute("ROLLBACK")
        raise
