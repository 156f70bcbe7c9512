"""The store on disk: one file in a folder, for one server at a time.

`sqs.db` the database · `sqs.lock` held by the server that uses it · `sqs.leases`, `sqs.leases2`
who has what in flight.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from sqlite3 import Connection
from struct import error as struct_error

import msgspec

from pump import headers
from pump.errors import StorageFailed
from pump.observability import vocabulary
from pump.observability.log import get_logger
from pump.serving import KeptLeases
from pump.stores.file_lock import FileLock
from pump.tasks import in_thread, to_the_end

from ..._sqlite.database import Database, Statement, translate
from ..._sqlite.group_commit import Done, GroupCommit
from ..._sqlite.reserve import DiskReserve
from ..model import NewMessage
from .engine import SqsEngine
from .entries import FORGET_ORPHANS, KEY, SCHEMA, Entry, NullStore, Store, statements_of
from .record import FileIdentity, SqsRecord, TimedHold
from .recovery import (
    Corrupted,
    LeaseFile,
    NotedLease,
    RecoveredState,
    lease_paths,
    read_leases,
    recover,
    set_aside,
)

_log = get_logger("gateways.sqs_server")


class SqsStore:
    """Durable: what it says is written survives the process and the machine (T3)."""

    def __init__(
        self,
        folder: Path,
        *,
        max_bytes: int | None = None,
        reserve_bytes: int | None = None,
        keeps_leases: KeptLeases = KeptLeases.AFTER_CRASH,
    ) -> None:
        self.path = folder / "sqs.db"
        self._keeps_leases = keeps_leases
        self._leases: LeaseFile | None = None
        self._lock = FileLock(folder / "sqs.lock")
        self._max_bytes = max_bytes
        self._reserve_bytes = reserve_bytes
        self._reserve: DiskReserve | None = None
        self._database: Database | None = None
        self._journal: GroupCommit | None = None

    async def open(self, engine: SqsEngine) -> None:
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
            await self.aclose(frees=False)
            raise

    def write(self, entry: Entry, done: Done) -> asyncio.Future[None]:
        assert self._journal is not None, "open it first"
        return self._journal.append(statements_of(entry), done)

    def has_room(self, messages: Sequence[NewMessage]) -> bool:
        assert self._reserve is not None, "open it first"
        return self._reserve.has_room(
            len(messages), _size_of(messages), is_routed=_are_routed(messages)
        )

    async def require_room(self, messages: Sequence[NewMessage]) -> None:
        assert self._reserve is not None, "open it first"
        await self._reserve.require_room(
            len(messages), _size_of(messages), is_routed=_are_routed(messages)
        )

    def note_receive(self, hold: TimedHold, records: Sequence[SqsRecord], offset_s: float) -> None:
        if self._leases is not None:
            self._leases.note(hold, records, offset_s)

    def note_changes(self, records: Sequence[SqsRecord], offset_s: float) -> None:
        if self._leases is not None:
            self._leases.note_changes(records, offset_s)

    async def flush(self) -> None:
        """Wait until everything given so far is written, or has failed."""
        if self._journal is not None:
            await self._journal.flush()

    async def aclose(self, *, frees: bool = True) -> None:
        """Cancelled, it closes all the same: the folder is another's only after the last write."""
        # A file that is still being written must not become another process's.
        await to_the_end(self._close(frees), "pumphouse-closing")

    async def _close(self, frees: bool) -> None:
        journal, database, leases = self._journal, self._database, self._leases
        try:
            if journal is not None:
                await journal.aclose()
            if leases is not None:
                self._leases = None
                keeps = not frees or self._keeps_leases is KeptLeases.ALWAYS
                await in_thread(leases.close, keeps=keeps)
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

    async def _fill(self, engine: SqsEngine, database: Database) -> None:
        # A new file gets its key before any id is made of it.
        key = FileIdentity.new().key
        await database.commit([Statement("INSERT OR IGNORE INTO meta VALUES (?, ?)", [(KEY, key)])])
        recovered = await self._recover(engine, database)
        lost = [
            each for each in recovered.corrupted if engine.dead_letter_queue_of(each.number) is None
        ]
        if lost:
            await self._set_aside(engine, database, lost)
        if recovered.orphans:
            await database.commit([Statement(sql, [()]) for sql in FORGET_ORPHANS])
        self._journal = GroupCommit(database)
        self._reserve = DiskReserve(database, self._journal, self._reserve_bytes)
        await database.in_thread(database.measure)
        self._journal.start()
        for each in recovered.corrupted:
            if each not in lost:
                self._dead_letter(engine, each)
        for task in recovered.tasks:
            engine.mover.start(task)
        for queue in engine.queues.values():
            queue.notify()

    async def _set_aside(
        self, engine: SqsEngine, database: Database, lost: Sequence[Corrupted]
    ) -> None:
        names = {queue.number: queue.address.name for queue in engine.queues.values()}
        message_id = engine.identity.message_id
        rows = [(each, message_id(each.record.origin), names.get(each.number)) for each in lost]
        time_s = engine.clock.time_s()
        await database.read(lambda connection: set_aside(connection, rows, time_s))
        for _, id, name in rows:
            _log.error(
                vocabulary.MESSAGE_CORRUPTED,
                message_id=id,
                queue=name,
                destination="table corrupted",
                path=str(self.path),
            )

    def _dead_letter(self, engine: SqsEngine, corrupted: Corrupted) -> None:
        id = engine.identity.message_id(corrupted.record.origin)
        queue, target = engine.dead_letter_corrupted(corrupted.number, corrupted.record)
        _log.error(
            vocabulary.MESSAGE_CORRUPTED,
            message_id=id,
            queue=queue,
            destination=target,
            path=str(self.path),
        )

    async def _recover(self, engine: SqsEngine, database: Database) -> RecoveredState:
        try:
            return await database.read(partial(self._read, engine))
        except (msgspec.MsgspecError, struct_error, ValueError, TypeError, KeyError) as error:
            detail = f"unreadable ({error}); restore a copy, or move it away and start anew"
            raise StorageFailed(str(self.path), detail) from error

    def _read(self, engine: SqsEngine, connection: Connection) -> RecoveredState:
        if self._keeps_leases is KeptLeases.NEVER:
            for path in lease_paths(self.path.parent):
                path.unlink(missing_ok=True)
        turns: list[int] = []

        def leases_of(key: int) -> Mapping[int, NotedLease]:
            turn, leases = read_leases(self.path.parent, key)
            turns.append(turn)
            return leases

        recovered = recover(engine, connection, leases_of)
        if self._keeps_leases is not KeptLeases.NEVER:
            self._leases = self._begin_leases(engine, turns[0])
        return recovered

    def _begin_leases(self, engine: SqsEngine, turn: int) -> LeaseFile:
        identity, clock = engine.identity, engine.clock
        leases = LeaseFile(
            self.path.parent, key=identity.key, boot=identity.boot, live=engine.receives
        )
        leases.open(turn, clock.time_s() - clock.now_s())
        return leases


def _size_of(messages: Sequence[NewMessage]) -> int:
    """In UTF-8, at most."""
    size = 0
    for message in messages:
        body = message.body
        size += len(body) if body.isascii() else 4 * len(body)
        if message.attributes:
            size += 4 * sum([len(each.value) for each in message.attributes.values()])
    return size


def _are_routed(messages: Sequence[NewMessage]) -> bool:
    return not [each for each in messages if headers.REJECTION_REASON not in each.attributes]


def open_store(
    folder: Path | None,
    *,
    max_bytes: int | None = None,
    keeps_leases: KeptLeases = KeptLeases.AFTER_CRASH,
) -> Store:
    """The store for a folder, or without one a store that keeps nothing."""
    if folder is None:
        return NullStore()
    return SqsStore(folder, max_bytes=max_bytes, keeps_leases=keeps_leases)
