"""An inbox in one SQLite file, shared by the processes of a machine.

The file may be the application's own database: then the work of a handler and the mark that it
was done can be one transaction (`SqliteInbox.transaction`), which is as close to exactly once
as there is. The table is `pump_inbox`; the file is put into WAL mode.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, suppress
from contextvars import ContextVar
from datetime import timedelta
from functools import partial
from typing import Any, NamedTuple, Self

import aiosqlite
import attrs

from ..errors import ConfigurationError, StorageFailed
from ..outcome import DeferMessage
from .claims import ClaimConnections, ClaimsFile, atomic, path_of_a_file
from .inbox import AlreadyDone, Busy, Claim, Claimed, Held, check_retention, current_claim
from .opening import translated


@attrs.define(eq=False)
class _MarkBatch:
    """Marks that will be committed together: one flush of the disk for all of them."""

    marks: list[Mark] = attrs.field(factory=list)
    is_written: bool = False


_inside: ContextVar[object] = ContextVar("pump_inbox_transaction", default=None)


class SqliteInbox:
    """Claims and marks in the SQLite file at `path`, opened by the first use.

    A mark is on the disk before `complete` returns (synchronous=FULL) and is kept for
    `retention`; older ones are removed as new ones come. For one event loop at a time.
    Survives pickling: the copy opens the file for itself.
    """

    def __init__(
        self, path: str | os.PathLike[str], *, retention: timedelta = timedelta(days=7)
    ) -> None:
        self._path = path_of_a_file(path, field="SqliteInbox.path", instead="MemoryInbox()")
        self._retention = retention
        self._retention_s = check_retention("SqliteInbox.retention", retention)
        self._table = InboxTable(self._path)
        self._file = ClaimsFile(self._path, create=self._table.create, prune=_PRUNE)
        self._batch = _MarkBatch()
        self._transaction: object = None

    def __repr__(self) -> str:
        return f"SqliteInbox({self._path!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(SqliteInbox, self._path, retention=self._retention), ()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def claim(self, key: str, *, owner: str, now_s: float, lease_s: float) -> Claim:
        async with self._opened() as files:
            await self._file.prune_now_and_then(files.claims, now_s)
            return await self._table.claim(files.claims, key, owner, now_s=now_s, lease_s=lease_s)

    async def extend(self, key: str, *, owner: str, now_s: float, lease_s: float) -> bool:
        async with self._opened() as files:
            return await self._table.extend(files.claims, key, owner, now_s=now_s, lease_s=lease_s)

    async def complete(self, key: str, *, owner: str, now_s: float) -> None:
        batch = self._batch
        batch.marks.append(Mark(key, owner, now_s + self._retention_s))
        async with self._opened() as files:
            # The first caller commits for all that came meanwhile. When it is cancelled or
            # fails, the next one tries: to write a mark twice does no harm.
            if not batch.is_written:
                self._batch = _MarkBatch()
                async with atomic(files.marks, self._path):
                    await self._table.complete(files.marks, batch.marks)
                batch.is_written = True

    async def release(self, key: str, *, owner: str) -> None:
        async with self._opened() as files:
            await self._table.release(files.claims, key, owner)

    async def aclose(self) -> None:
        """Close the file; a later use opens it again."""
        self._require_outside()
        await self._file.aclose()

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[aiosqlite.Connection]:
        """Commit what the block writes together with the mark that this message was handled.

        For an async handler behind `OnceOnly(inbox)`, once a handling. Either both are on the
        disk when the block ends, or neither; the block does not commit itself. A handler whose
        claim was taken over meanwhile (it stood still for longer than the claim's lease) is
        fenced off: `DeferMessage` is raised before the block runs. Whatever the handler does
        after the block is not repeated if it fails. Writers take turns, so keep the block short.
        """
        context, held = current_claim(self)
        async with self._opened() as files:
            async with atomic(files.marks, self._path):
                await self._table.fence(files.marks, held, context.clock.time_s())
                with self._marked_as_inside():
                    yield files.marks
                if not files.marks.in_transaction:
                    raise StorageFailed(
                        self._path, "the block ended the transaction itself; leave that to it"
                    )
                mark = Mark(held.key, held.owner, context.clock.time_s() + self._retention_s)
                await self._table.complete(files.marks, [mark])
            held.is_recorded = True

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Have calls of this inbox wait while another connection's transaction writes its file."""
        async with self._opened():
            with self._marked_as_inside():
                yield

    @contextmanager
    def _marked_as_inside(self) -> Iterator[None]:
        self._transaction = object()
        token = _inside.set(self._transaction)
        try:
            yield
        finally:
            self._transaction = None
            _inside.reset(token)

    def _opened(self) -> AbstractAsyncContextManager[ClaimConnections]:
        self._require_outside()
        return self._file.opened()

    def _require_outside(self) -> None:
        if self._transaction is not None and _inside.get() is self._transaction:
            raise StorageFailed(
                self._path, "its transaction is open around this; do this after the block"
            )


# The table of a SQLite inbox: one statement an operation, its own transaction but inside `atomic`.

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


class InboxRow(NamedTuple):
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

    async def fence(self, connection: aiosqlite.Connection, held: Held, now_s: float) -> None:
        """Raise `DeferMessage` when the claim is not the handler's any more."""
        row = await self.look(connection, held.key)
        # No row: the claim ran out and was pruned, and no other owner has taken the key since.
        if row is None:
            return
        if row.owner != held.owner:
            rest_s = 0.0 if row.is_done else max(0.0, row.expires_at_s - now_s)
            longest_s = held.lease_s if row.lease_s is None else row.lease_s
            raise DeferMessage(timedelta(seconds=min(rest_s, longest_s)))
        if row.is_done:
            raise ConfigurationError(
                "SqliteInbox.transaction", self.path, "one transaction a handling; join the two"
            )

    async def look(self, connection: aiosqlite.Connection, key: str) -> InboxRow | None:
        """What is known of the key, expired or not."""
        # In one go: a cancellation between execute and fetch would leave the statement, and with
        # it its snapshot of the file, open.
        with translated(self.path):
            rows = list(await connection.execute_fetchall(_LOOK, (key,)))
        return InboxRow(rows[0][0], bool(rows[0][1]), rows[0][2], rows[0][3]) if rows else None

    async def run(
        self, connection: aiosqlite.Connection, statement: str, *values: object
    ) -> aiosqlite.Cursor:
        """Execute one statement."""
        with translated(self.path):
            return await connection.execute(statement, values)
