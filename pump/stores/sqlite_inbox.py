"""An inbox in one SQLite file, shared by the processes of a machine.

The file may be the application's own database: then the work of a handler and the mark that it
was done can be one transaction (`SqliteInbox.transaction`), which is as close to exactly once
as there is. The table is `pump_inbox`; the file is put into WAL mode.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from datetime import timedelta
from functools import partial
from typing import Any, Self

import aiosqlite
import attrs

from ..errors import ConfigurationError, StorageFailed
from ..signals import DeferMessage
from .inbox import Claim, Held, check_retention, claim_in_hand
from .inbox_table import InboxTable, Mark
from .opening import open_database, to_the_end

_PRUNE_EVERY = 256


@attrs.frozen(eq=False)
class _Connections:
    """Two, because a claim may die with the machine (as its handler does), a mark may not."""

    claims: aiosqlite.Connection
    marks: aiosqlite.Connection


@attrs.define(eq=False)
class _Batch:
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
        self._batch = _Batch()
        self._transaction: object = None
        self._until_prune = 0

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
            await self._prune_now_and_then(files, now_s)
            return await self._table.claim(files.claims, key, owner, now_s=now_s, lease_s=lease_s)

    async def extend(self, key: str, *, owner: str, now_s: float, lease_s: float) -> bool:
        async with self._opened() as files:
            return await self._table.extend(files.claims, key, owner, now_s=now_s, lease_s=lease_s)

    async def complete(self, key: str, *, owner: str, now_s: float) -> None:
        batch = self._batch
        batch.marks.append(Mark(key, owner, now_s + self._retention_s))
        async with self._opened() as files:
            # Whoever is first commits for all who came meanwhile. When that one is cancelled or
            # fails, the next one tries: to write a mark twice does no harm.
            if not batch.is_written:
                self._batch = _Batch()
                async with self._table.atomic(files.marks):
                    await self._table.complete(files.marks, batch.marks)
                batch.is_written = True

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
        context, held = claim_in_hand(self)
        async with self._opened() as files:
            async with self._table.atomic(files.marks):
                await self._fence(files.marks, held, context.clock.time_s())
                with self._marked_as_inside():
                    yield files.marks
                if not files.marks.in_transaction:
                    raise StorageFailed(
                        self._path, "the block ended the transaction itself; leave that to it"
                    )
                mark = Mark(held.key, held.owner, context.clock.time_s() + self._retention_s)
                await self._table.complete(files.marks, [mark])
            held.is_recorded = True

    async def _fence(self, marks: aiosqlite.Connection, held: Held, now_s: float) -> None:
        row = await self._table.look(marks, held.key)
        # No row: the claim ran out and was pruned, and nobody has taken the key since.
        if row is None:
            return
        if row.owner != held.owner:
            rest_s = 0.0 if row.is_done else max(0.0, row.expires_at_s - now_s)
            longest_s = held.lease_s if row.lease_s is None else row.lease_s
            raise DeferMessage(timedelta(seconds=min(rest_s, longest_s)))
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
            files = self._connections
            yield files if files is not None else await to_the_end(self._open())

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
        self._connections = _Connections(claims, marks)
        return self._connections

    async def _prune_now_and_then(self, files: _Connections, now_s: float) -> None:
        self._until_prune -= 1
        if self._until_prune < 0:
            self._until_prune = _PRUNE_EVERY
            # More than can have come since the last time, so that the table shrinks again.
            await self._table.prune(files.claims, now_s=now_s, max_count=4 * _PRUNE_EVERY)
