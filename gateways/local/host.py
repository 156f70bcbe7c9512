"""The host: the one process at a time in which the engine lives."""

from __future__ import annotations

import asyncio

import attrs

from pump.clock import Clock
from pump.stores.file_lock import FileLock

from .._engine.engine import Engine
from .._sqlite.database import Database, Run, to_the_end
from .dispatcher import Dispatcher
from .folder import DataFolder
from .journal import SCHEMA, SqliteJournal
from .recovery import Recovered, recover
from .server import Server


@attrs.frozen(kw_only=True)
class Limits:
    """How much of the disk may be used."""

    max_bytes: int | None = None
    reserve_bytes: int | None = None
    """What is kept for receives and acks; None for a suitable amount, 0 for nothing."""


class Host:
    """Engine, journal and server, for as long as this process holds the engine's lock."""

    def __init__(
        self,
        folder: DataFolder,
        lock: FileLock,
        database: Database,
        owner: str,
        clock: Clock,
        *,
        reserve_bytes: int | None = None,
    ) -> None:
        self._folder = folder
        self._lock = lock
        self._database = database
        self._owner = owner
        self._journal = SqliteJournal(database, clock, reserve_bytes=reserve_bytes)
        self.engine = Engine(clock, self._journal)
        if reserve_bytes != 0:
            self.engine.reserve = self._journal
        self.dispatcher = Dispatcher(self.engine, {})
        self._server: Server | None = None

    @classmethod
    async def start(
        cls, folder: DataFolder, lock: FileLock, owner: str, clock: Clock, limits: Limits
    ) -> Host:
        """Recover from the file and open the door. The lock is the host's from here on."""
        try:
            database = await Database.open(
                folder.database, SCHEMA, max_bytes=limits.max_bytes, companions=[lock.path]
            )
            reserve_bytes = limits.reserve_bytes
            host = cls(folder, lock, database, owner, clock, reserve_bytes=reserve_bytes)
            try:
                await host._start()
            except BaseException:
                await host._close_files()
                raise
        except BaseException:
            lock.release()
            raise
        return host

    async def _start(self) -> None:
        recovered = await recover(self.engine, self._database)
        await self._journal.keep_time(recovered.boot_id, recovered.offset_s)
        if recovered.void_leases:
            sql = "DELETE FROM leases WHERE id = ?"
            await self._database.commit([Run(sql, [(each,) for each in recovered.void_leases])])
        self._journal.start()
        self.dispatcher = Dispatcher(self.engine, recovered.replies)
        await self._bury_dead_owners(recovered)
        # Leases that ran out while nobody hosted end now, on disk too.
        await self.engine.queues()
        await self._journal.flush()
        self._server = Server(self._folder, self.dispatcher, self.engine)
        address = await self._server.start()
        await asyncio.to_thread(self._lock.inscribe, str(address))

    async def _bury_dead_owners(self, recovered: Recovered) -> None:
        """T4: only the leases of the dead end now; the living keep theirs."""
        known = recovered.owners.union(await asyncio.to_thread(self._folder.owners))
        for owner in known - {self._owner, ""}:
            if await asyncio.to_thread(self._folder.bury, owner):
                await self.dispatcher.forget(owner)

    async def aclose(self) -> None:
        """Write what is pending, give back what this process held, let another take over.

        Cancelled, it does so first: a file that is still being written must not be another's.
        """
        await to_the_end(self._close())

    async def _close(self) -> None:
        try:
            if self._server is not None:
                await self._server.aclose()
            self.engine.close()
            await self.dispatcher.forget(self._owner)
            await self._close_files()
        finally:
            self._lock.release()

    async def _close_files(self) -> None:
        await self._journal.aclose()
        await self._database.close()
