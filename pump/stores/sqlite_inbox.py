"""An inbox in one SQLite file, shared by the processes of a machine.

The file may be the application's own database: then the work of a handler and the mark that it
was done can be one transaction (`SqliteInbox.transaction`), which is as close to exactly once
as there is. The table is `pump_inbox`; the file is put into WAL mode.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from contextvars import ContextVar
from datetime import timedelta
from typing import Any, Self

import aiosqlite
import attrs

from ..context import Context, current_context
from ..errors import ConfigurationError, StorageFailed
from ..signals import DeferMessage
from .inbox import HELD, Claim, Held, check_retention
from .inbox_table import InboxTable
from .opening import open_database

_PRUNE_EVERY = 256
# More than can have come since the last time, so that the table shrinks again.
_MAX_PRUNED = 1024


@attrs.frozen(eq=False)
class _Connections:
    """Two, because a claim may die with the machine (as its handler does), a mark may not."""

    claims: aiosqlite.Connection
    marks: aiosqlite.Connection


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
        self._path = os.fspath(path)
        if not self._path or self._path == ":memory:":
            raise ConfigurationError(
                "SqliteInbox.path", self._path, "name a file, or use MemoryInbox()"
            )
        self._retention = retention
        self._retention_s = check_retention("SqliteInbox.retention", retention)
        self._table = InboxTable(self._path)
        self._connections: _Connections | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._lock = asyncio.Lock()
        self._transaction: object = None
        self._until_prune = 0

    def __repr__(self) -> str:
        return f"SqliteInbox({self._path!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (self._path, self._retention)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def claim(self, key: str, *, owner: str, now_s: float, lease_s: float) -> Claim:
        async with self._opened() as files:
            await self._prune_now_and_then(files, now_s)
            return await self._table.claim(
                files.claims, key, owner, now_s=now_s, until_s=now_s + lease_s
            )

    async def extend(self, key: str, *, owner: str, now_s: float, lease_s: float) -> bool:
        async with self._opened() as files:
            return await self._table.extend(files.claims, key, owner, until_s=now_s + lease_s)

    async def complete(self, key: str, *, owner: str, now_s: float) -> None:
        async with self._opened() as files:
            until_s = now_s + self._retention_s
            await self._table.complete(files.marks, key, owner, until_s=until_s)

    async def release(self, key: str, *, owner: str) -> None:
        async with self._opened() as files:
            await self._table.release(files.claims, key, owner)

    async def aclose(self) -> None:
        """Close the file; a later use opens it again."""
        async with self._alone():
            files, self._connections = self._connections, None
            if files is not None:
                await files.claims.close()
                await files.marks.close()

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[aiosqlite.Connection]:
        """Commit what the block writes together with the mark that this message was handled.

        For an async handler behind `OnceOnly(inbox)`, once a handling. Either both are on the
        disk when the block ends, or neither; the block does not commit itself. A handler whose
        claim was taken over meanwhile (it stood still for longer than the claim's lease) is
        fenced off: `DeferMessage` is raised before the block runs. Whatever the handler does
        after the block is not repeated if it fails. Writers take turns, so keep the block short.
        """
        context, held = self._claim_in_hand()
        async with self._opened() as files:
            marks = files.marks
            try:
                await self._table.run(marks, "BEGIN IMMEDIATE")
                await self._fence(marks, held, context.clock.time_s())
                with self._marked_as_inside():
                    yield marks
                if not marks.in_transaction:
                    raise StorageFailed(
                        self._path, "the block ended the transaction itself; leave that to it"
                    )
                until_s = context.clock.time_s() + self._retention_s
                await self._table.complete(marks, held.key, held.owner, until_s=until_s)
                await self._table.run(marks, "COMMIT")
            except BaseException:
                # Also after a cancelled BEGIN or COMMIT, which the thread still carries out.
                with suppress(sqlite3.Error):
                    await marks.execute("ROLLBACK")
                raise
            held.is_recorded = True

    def _claim_in_hand(self) -> tuple[Context, Held]:
        context = current_context()
        if context is not None:
            for held in reversed(context.bag.get(HELD, ())):
                if held.inbox is self:
                    return context, held
        raise ConfigurationError(
            "SqliteInbox.transaction",
            self._path,
            "use it inside a handler that stands behind OnceOnly with this same inbox",
        )

    async def _fence(self, marks: aiosqlite.Connection, held: Held, now_s: float) -> None:
        row = await self._table.look(marks, held.key)
        # No row: the claim ran out and was pruned, and nobody has taken the key since.
        if row is None:
            return
        if row.owner != held.owner:
            wait_s = 0.0 if row.is_done else max(0.0, row.expires_at_s - now_s)
            raise DeferMessage(timedelta(seconds=wait_s))
        if row.is_done:
            raise ConfigurationError(
                "SqliteInbox.transaction", self._path, "one transaction a handling; join the two"
            )

    @contextmanager
    def _marked_as_inside(self) -> Iterator[None]:
        self._transaction = object()
        token = _inside.set(self._transaction)
        try:
            yield
        finally:
            self._transaction = None
            _inside.reset(token)

    @asynccontextmanager
    async def _opened(self) -> AsyncIterator[_Connections]:
        async with self._alone():
            if self._connections is None:
                self._connections = await self._open()
            yield self._connections

    def _alone(self) -> asyncio.Lock:
        if self._transaction is not None and _inside.get() is self._transaction:
            raise StorageFailed(
                self._path, "its transaction is open around this; do this after the block"
            )
        # A lock belongs to one loop, and a module's inbox may outlive several.
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            self._loop, self._lock = loop, asyncio.Lock()
        return self._lock

    async def _open(self) -> _Connections:
        marks = await open_database(self._path, synchronous="FULL")
        try:
            await self._table.create(marks)
            claims = await open_database(self._path, synchronous="NORMAL")
        except BaseException:
            await marks.close()
            raise
        return _Connections(claims, marks)

    async def _prune_now_and_then(self, files: _Connections, now_s: float) -> None:
        self._until_prune -= 1
        if self._until_prune < 0:
            self._until_prune = _PRUNE_EVERY
            await self._table.prune(files.claims, now_s=now_s, max_count=_MAX_PRUNED)


def _rebuild(path: str, retention: timedelta) -> SqliteInbox:
    return SqliteInbox(path, retention=retention)
