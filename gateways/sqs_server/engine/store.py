"""The store on disk: one file in a folder, for one server at a time.

`sqs.db` the database · `sqs.lock` held by the server that uses it.
"""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path

import msgspec

from pump.errors import StorageFailed
from pump.stores.file_lock import FileLock

from ..._sqlite.closing import to_the_end
from ..._sqlite.database import Database, Run
from ..._sqlite.errors import translate
from ..._sqlite.group_commit import Done, GroupCommit
from .engine import Engine
from .entries import Entry, NullStore, Store
from .identity import Identity
from .recovery import Recovered, recover
from .schema import KEY, SCHEMA
from .scribe import FORGET_ORPHANS, take_down


class SqliteStore:
    """Durable: what it says is written survives the process and the machine (T3)."""

    def __init__(self, folder: Path, *, max_bytes: int | None = None) -> None:
        self.path = folder / "sqs.db"
        self._lock = FileLock(folder / "sqs.lock")
        self._max_bytes = max_bytes
        self._database: Database | None = None
        self._journal: GroupCommit | None = None

    async def open(self, engine: Engine) -> None:
        """Make what is missing, for this user only, and recover what is there.

        `StorageFailed` when the folder cannot be used, the file is not ours or damaged (it
        stays as it was), or another server uses it.
        """
        await self._acquire()
        try:
            self._database = await Database.open(
                self.path, SCHEMA, max_bytes=self._max_bytes, companions=[self._lock.path]
            )
            await self._fill(engine, self._database)
        except BaseException:
            await self.aclose()
            raise

    def write(self, entry: Entry, done: Done) -> asyncio.Future[None]:
        assert self._journal is not None, "open it first"
        return self._journal.append(take_down(entry), done)

    async def flush(self) -> None:
        """Wait until everything given so far is written, or has failed."""
        if self._journal is not None:
            await self._journal.flush()

    async def aclose(self) -> None:
        """Cancelled, it closes all the same: the folder is another's only after the last write."""
        await to_the_end(self._close())

    async def _close(self) -> None:
        journal, database = self._journal, self._database
        try:
            if journal is not None:
                await journal.aclose()
            if database is not None:
                self._database = None
                await database.close()
        finally:
            self._lock.release()

    async def _acquire(self) -> None:
        with translate(self._lock.path):
            acquiring = asyncio.ensure_future(asyncio.to_thread(self._try_acquire))
            try:
                is_ours = await asyncio.shield(acquiring)
            except asyncio.CancelledError:
                await asyncio.wait([acquiring])
                self._lock.release()
                raise
        if not is_ours:
            raise StorageFailed(
                str(self.path.parent),
                "another server uses this folder; stop it, or name another folder",
            )

    def _try_acquire(self) -> bool:
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        return self._lock.try_acquire()

    async def _fill(self, engine: Engine, database: Database) -> None:
        # A new file gets its key before anybody is given an id made of it.
        key = Identity.new().key
        await database.commit([Run("INSERT OR IGNORE INTO meta VALUES (?, ?)", [(KEY, key)])])
        recovered = await self._recover(engine, database)
        if recovered.orphans:
            await database.commit([Run(sql, [()]) for sql in FORGET_ORPHANS])
        self._journal = GroupCommit(database)
        self._journal.start()
        for task in recovered.tasks:
            engine.mover.start(task)
        for queue in engine.queues.values():
            queue.stir()

    async def _recover(self, engine: Engine, database: Database) -> Recovered:
        try:
            return await database.read(partial(recover, engine))
        except (msgspec.MsgspecError, ValueError, TypeError, KeyError) as error:
            detail = f"unreadable ({error}); restore a copy, or move it away and start anew"
            raise StorageFailed(str(self.path), detail) from error


def open_store(folder: Path | None, *, max_bytes: int | None = None) -> Store:
    """The store for a folder, or without one a store that keeps nothing."""
    return NullStore() if folder is None else SqliteStore(folder, max_bytes=max_bytes)
