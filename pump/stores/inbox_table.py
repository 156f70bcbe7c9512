"""The table of a SQLite inbox: one statement an operation, its own transaction but for `atomic`."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import NamedTuple

import aiosqlite
import attrs

from .inbox import AlreadyDone, Busy, Claim, Claimed
from .opening import translated

_SCHEMA = """
CREATE TABLE IF NOT EXISTS pump_inbox (
    key TEXT PRIMARY KEY,
    owner TEXT NOT NULL,
    is_done INTEGER NOT NULL,
    expires_at_s REAL NOT NULL
) WITHOUT ROWID
"""
_INDEX = "CREATE INDEX IF NOT EXISTS pump_inbox_expiry ON pump_inbox (expires_at_s)"
# Added later, and unknown to older releases: what a claim may last, NULL for theirs.
_ADD_LEASE = "ALTER TABLE pump_inbox ADD COLUMN lease_s REAL"
_CLAIM = """
INSERT INTO pump_inbox (key, owner, is_done, expires_at_s, lease_s) VALUES (?, ?, 0, ?, ?)
ON CONFLICT (key) DO UPDATE SET
    owner = excluded.owner, is_done = 0, expires_at_s = excluded.expires_at_s,
    lease_s = excluded.lease_s
WHERE pump_inbox.expires_at_s <= ?
"""
# A claim that seems to last for longer than its lease was made before the clock was set back. Its
# owner, if it lives, extends it as always.
_BOUND = """
UPDATE pump_inbox SET expires_at_s = ? + coalesce(lease_s, ?)
WHERE key = ? AND owner = ? AND is_done = 0 AND expires_at_s > ? + coalesce(lease_s, ?)
"""
_LOOK = "SELECT owner, is_done, expires_at_s, lease_s FROM pump_inbox WHERE key = ?"
_EXTEND = """
UPDATE pump_inbox SET expires_at_s = ?, lease_s = ? WHERE key = ? AND owner = ? AND is_done = 0
"""
_COMPLETE = """
INSERT INTO pump_inbox (key, owner, is_done, expires_at_s) VALUES (?, ?, 1, ?)
ON CONFLICT (key) DO UPDATE SET
    owner = excluded.owner, is_done = 1, expires_at_s = excluded.expires_at_s
"""
_RELEASE = "DELETE FROM pump_inbox WHERE key = ? AND owner = ? AND is_done = 0"
_PRUNE = """
DELETE FROM pump_inbox WHERE key IN (
    SELECT key FROM pump_inbox WHERE expires_at_s <= ? ORDER BY expires_at_s LIMIT ?)
"""


class Mark(NamedTuple):
    """That a key was handled, and for how long to remember it."""

    key: str
    owner: str
    until_s: float


class Row(NamedTuple):
    """What the table knows of a key."""

    owner: str
    is_done: bool
    expires_at_s: float
    lease_s: float | None


@attrs.frozen
class InboxTable:
    """The statements, run on whichever connection is given. Raises `StorageFailed`."""

    path: str

    async def create(self, connection: aiosqlite.Connection) -> None:
        """Make the table if this is its first use."""
        await self.run(connection, _SCHEMA)
        columns = await connection.execute_fetchall("PRAGMA table_info(pump_inbox)")
        if "lease_s" not in {column[1] for column in columns}:
            # Another process may add it at the same moment.
            with suppress(sqlite3.OperationalError):
                await connection.execute(_ADD_LEASE)
        await self.run(connection, _INDEX)

    async def claim(
        self,
        connection: aiosqlite.Connection,
        key: str,
        owner: str,
        *,
        now_s: float,
        lease_s: float,
    ) -> Claim:
        """Take the key if it is free or has expired."""
        while True:
            taken = await self.run(connection, _CLAIM, key, owner, now_s + lease_s, lease_s, now_s)
            if taken.rowcount == 1:
                return Claimed()
            row = await self.look(connection, key)
            # Without a row, its owner in another process has just released it: try again.
            if row is not None and row.is_done:
                return AlreadyDone()
            if row is not None:
                longest_s = lease_s if row.lease_s is None else row.lease_s
                if row.expires_at_s > now_s + longest_s:
                    await self.run(
                        connection, _BOUND, now_s, lease_s, key, row.owner, now_s, lease_s
                    )
                return Busy(min(row.expires_at_s, now_s + longest_s))

    async def extend(
        self,
        connection: aiosqlite.Connection,
        key: str,
        owner: str,
        *,
        now_s: float,
        lease_s: float,
    ) -> bool:
        """Move the end of a claim that is still the owner's."""
        moved = await self.run(connection, _EXTEND, now_s + lease_s, lease_s, key, owner)
        return moved.rowcount == 1

    async def complete(self, connection: aiosqlite.Connection, marks: Sequence[Mark]) -> None:
        """Mark keys as done, whatever they were; all of them or none inside `atomic`."""
        with translated(self.path):
            await connection.executemany(_COMPLETE, marks)

    async def release(self, connection: aiosqlite.Connection, key: str, owner: str) -> None:
        """Remove a claim of the owner's, never a mark."""
        await self.run(connection, _RELEASE, key, owner)

    async def prune(
        self, connection: aiosqlite.Connection, *, now_s: float, max_count: int
    ) -> None:
        """Remove expired rows, so many at most that nobody waits long."""
        await self.run(connection, _PRUNE, now_s, max_count)

    @asynccontextmanager
    async def atomic(self, connection: aiosqlite.Connection) -> AsyncIterator[None]:
        """Commit what the block writes at its end, or nothing of it."""
        try:
            await self.run(connection, "BEGIN IMMEDIATE")
            yield
            await self.run(connection, "COMMIT")
        except BaseException:
            # Also after a cancelled BEGIN or COMMIT, which the thread still carries out.
            with suppress(sqlite3.Error):
                await connection.execute("ROLLBACK")
            raise

    async def look(self, connection: aiosqlite.Connection, key: str) -> Row | None:
        """What is known of the key, expired or not."""
        # In one go: a cancellation between execute and fetch would leave the statement, and with
        # it its snapshot of the file, open.
        with translated(self.path):
            rows = list(await connection.execute_fetchall(_LOOK, (key,)))
        return Row(rows[0][0], bool(rows[0][1]), rows[0][2], rows[0][3]) if rows else None

    async def run(
        self, connection: aiosqlite.Connection, statement: str, *values: object
    ) -> aiosqlite.Cursor:
        """Execute one statement."""
        with translated(self.path):
            return await connection.execute(statement, values)
