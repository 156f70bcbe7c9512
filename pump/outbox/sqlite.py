"""The outbox in SQLite: tables in the user's own database file.

A relay has a destination to itself by a lease, a row with an end: a transaction that was held
during the call to the broker would keep the user from writing.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import aiosqlite
import attrs

from ..clock import SYSTEM_CLOCK, Clock
from ..errors import ConfigurationError, StorageFailed
from ..message import new_id
from ..stores.claims import atomic, path_of_a_file
from ..stores.opening import translated
from ..subscription import MakeChannels
from ..tasks import in_thread, to_the_end
from .store import (
    MAX_BYTES,
    DestinationStats,
    Posted,
    Relayed,
    RowBatch,
    RowsWanted,
    SetAside,
    Told,
    WaitingRow,
)
from .transactions import DatabaseKind, Target, Write, Writer, writer_for

VERSION: Final = 1
LEASE_S: Final = 10.0
"""How long a relay that died keeps a destination."""
_BUSY_S: Final = 25.0
_POLL_S: Final = 0.01
_IDLE_POLL_S: Final = 0.1
_LIVELY_S: Final = 5.0
"""How long after a commit the next one is expected."""
_PRUNED: Final = 10_000

_TABLES: Final = (
    "CREATE TABLE pumphouse_outbox_version (number INTEGER NOT NULL)",
    f"INSERT INTO pumphouse_outbox_version VALUES ({VERSION})",
    # Never the position of a row that is gone, so that order and rests are by it.
    """CREATE TABLE pumphouse_outbox (
    position INTEGER PRIMARY KEY AUTOINCREMENT,
    destination TEXT NOT NULL,
    lane INTEGER,
    attempts INTEGER NOT NULL DEFAULT 0,
    posted_at_s REAL NOT NULL,
    due_at_s REAL,
    id BLOB NOT NULL,
    message BLOB NOT NULL
)""",
    "CREATE INDEX pumphouse_outbox_next ON pumphouse_outbox (destination, position)",
    """CREATE TABLE pumphouse_outbox_set_aside (
    position INTEGER PRIMARY KEY,
    destination TEXT NOT NULL,
    lane INTEGER,
    attempts INTEGER NOT NULL,
    posted_at_s REAL NOT NULL,
    due_at_s REAL,
    id BLOB NOT NULL,
    message BLOB NOT NULL,
    reason TEXT NOT NULL,
    set_aside_at_s REAL NOT NULL
)""",
    """CREATE TABLE pumphouse_outbox_sent (
    position INTEGER PRIMARY KEY,
    destination TEXT NOT NULL,
    lane INTEGER,
    attempts INTEGER NOT NULL,
    posted_at_s REAL NOT NULL,
    due_at_s REAL,
    id BLOB NOT NULL,
    message BLOB NOT NULL,
    sent_at_s REAL NOT NULL
)""",
    "CREATE INDEX pumphouse_outbox_sent_at ON pumphouse_outbox_sent (sent_at_s)",
    # Which relay has a destination, and until when.
    """CREATE TABLE pumphouse_outbox_lease (
    destination TEXT PRIMARY KEY,
    owner TEXT NOT NULL,
    until_s REAL NOT NULL
)""",
)
_FIND_VERSION: Final = (
    "SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = 'pumphouse_outbox_version'"
)
_POST: Final = """INSERT INTO pumphouse_outbox
(destination, lane, posted_at_s, due_at_s, id, message) VALUES ({1}, {2}, {3}, {4}, {5}, {6})"""
_DESTINATIONS: Final = """WITH RECURSIVE found (destination) AS (
    SELECT min(destination) FROM pumphouse_outbox
    UNION ALL
    SELECT (SELECT min(o.destination) FROM pumphouse_outbox o
            WHERE o.destination > found.destination)
    FROM found WHERE found.destination IS NOT NULL
)
SELECT destination FROM found WHERE destination IS NOT NULL"""
_TAKE: Final = """SELECT position, id, lane, attempts, posted_at_s, due_at_s, message FROM (
    SELECT *, sum(length(message)) OVER (ORDER BY position) - length(message) AS before FROM (
        SELECT * FROM pumphouse_outbox WHERE destination = :destination
        AND position NOT IN (SELECT value FROM json_each(:without))
        AND (lane IS NULL OR lane NOT IN (SELECT value FROM json_each(:without_lanes))) {ids}
        ORDER BY position LIMIT :most
    )
) WHERE before <= :most_bytes ORDER BY position"""
_ONLY: Final = """AND (hex(id) IN (SELECT value FROM json_each(:ids)) OR lane IN (
    SELECT lane FROM pumphouse_outbox WHERE destination = :destination
    AND hex(id) IN (SELECT value FROM json_each(:ids))
))"""
# A lease that seems to last for longer was taken before the clock was set back.
_LEASE: Final = """INSERT INTO pumphouse_outbox_lease (destination, owner, until_s)
VALUES (:destination, :owner, :now_s + :lease_s)
ON CONFLICT (destination) DO UPDATE SET owner = excluded.owner, until_s = excluded.until_s
WHERE until_s <= :now_s OR until_s > :now_s + :lease_s"""
_RENEW: Final = """UPDATE pumphouse_outbox_lease SET until_s = ?
WHERE destination = ? AND owner = ?"""
_RELEASE: Final = "DELETE FROM pumphouse_outbox_lease WHERE destination = ? AND owner = ?"
_COLUMNS: Final = "position, destination, lane, attempts, posted_at_s, due_at_s, id, message"
_GONE: Final = "DELETE FROM pumphouse_outbox WHERE position = ?"
_KEEP: Final = f"""INSERT INTO pumphouse_outbox_sent ({_COLUMNS}, sent_at_s)
SELECT {_COLUMNS}, ? FROM pumphouse_outbox WHERE position = ?"""
_REFUSED: Final = "UPDATE pumphouse_outbox SET attempts = attempts + 1 WHERE position = ?"
_ASIDE: Final = f"""INSERT INTO pumphouse_outbox_set_aside ({_COLUMNS}, reason, set_aside_at_s)
SELECT {_COLUMNS}, ?, ? FROM pumphouse_outbox WHERE position = ?"""
_PRUNE: Final = """DELETE FROM pumphouse_outbox_sent WHERE position IN (
    SELECT position FROM pumphouse_outbox_sent WHERE sent_at_s < ? ORDER BY sent_at_s LIMIT ?
)"""
_STATS: Final = """SELECT destination, sum(waiting), min(posted_at_s), sum(set_aside) FROM (
    SELECT destination, 1 AS waiting, posted_at_s, 0 AS set_aside FROM pumphouse_outbox
    UNION ALL
    SELECT destination, 0, NULL, 1 FROM pumphouse_outbox_set_aside
) GROUP BY destination ORDER BY destination"""
_LIST: Final = """SELECT position, id, destination, reason, attempts, posted_at_s, set_aside_at_s
FROM pumphouse_outbox_set_aside ORDER BY set_aside_at_s, position LIMIT ?"""
_CHOSEN: Final = "(:ids IS NULL OR hex(id) IN (SELECT value FROM json_each(:ids)))"
_RETRY: Final = f"""INSERT INTO pumphouse_outbox
(destination, lane, posted_at_s, due_at_s, id, message)
SELECT destination, lane, posted_at_s, due_at_s, id, message FROM pumphouse_outbox_set_aside
WHERE {_CHOSEN} ORDER BY position"""
_DROP: Final = f"DELETE FROM pumphouse_outbox_set_aside WHERE {_CHOSEN}"
_FIND: Final = """SELECT destination, id FROM pumphouse_outbox
WHERE hex(id) IN (SELECT value FROM json_each(:ids)) ORDER BY position"""


class SqliteOutbox:
    """An outbox in the user's SQLite database, in tables that are called `pumphouse_outbox…`."""

    def __init__(
        self,
        path: Path | str,
        *,
        make: MakeChannels = MakeChannels.CREATE,
        keep: timedelta | None = None,
    ) -> None:
        """`path` is the file that the transactions write to. `make` says what opening does about
        the tables, `keep` how long what was sent is kept in `pumphouse_outbox_sent`.
        """
        if keep is not None and keep <= timedelta(0):
            remedy = "use a timedelta above zero, or None to keep nothing that was sent"
            raise ConfigurationError("SqliteOutbox.keep", keep, remedy)
        self._path = path_of_a_file(
            os.fspath(path), field="SqliteOutbox.path", instead="no outbox: memory has no crashes"
        )
        self._make = MakeChannels(make)
        self._keep_s = None if keep is None else keep.total_seconds()
        self._target = Target(DatabaseKind.SQLITE, self._posts)
        self._clock: Clock = SYSTEM_CLOCK
        self._connection: aiosqlite.Connection | None = None
        self._lock = asyncio.Lock()
        self._watching: asyncio.Task[None] | None = None
        self._notice: Callable[[], object] | None = None
        self._told: set[Told] = set()

    def __repr__(self) -> str:
        return f"SqliteOutbox({self._path!r})"

    @property
    def name(self) -> str:
        return self._path

    @property
    def hears(self) -> bool:
        return self._watching is not None

    @property
    def max_taken(self) -> None:
        """Any number of destinations can be taken at once: a lease keeps no connection."""
        return None

    def writer(self, transaction: object) -> Writer:
        return writer_for(transaction, self._target)

    def _posts(self, posted: Sequence[Posted]) -> Sequence[Write]:
        now_s = self._clock.time_s()
        if self._notice is not None:
            self._notice()
        values = [
            (
                each.destination,
                each.lane,
                now_s,
                now_s + each.delay_s if each.delay_s > 0 else None,
                _octets(each.id),
                each.packed,
            )
            for each in posted
        ]
        return [Write(_POST, values)] if values else []

    async def open(self, clock: Clock) -> None:
        self._clock = clock
        # A lock belongs to one loop, and an app may be opened on another one each time.
        self._lock = asyncio.Lock()
        self._connection = await to_the_end(self._connect())
        if self._make is MakeChannels.ASSUME:
            return
        try:
            await self._make_or_check(self._connection)
        except BaseException:
            await self.aclose()
            raise

    async def _connect(self) -> aiosqlite.Connection:
        source: str | Path = self._path
        if self._make is not MakeChannels.CREATE:
            # A file that is missing is an error, and not to be made here.
            source = f"{await in_thread(_uri_of, self._path)}?mode=rw"
        connection = aiosqlite.connect(
            source, isolation_level=None, timeout=_BUSY_S, uri=source is not self._path
        )
        # An outbox that was not closed must not keep its process from ending. The worker was the
        # connection itself before aiosqlite 0.22.
        worker: Any = getattr(connection, "_thread", connection)
        worker.daemon = True
        with translated(self._path):
            try:
                await connection
            except BaseException:
                await in_thread(worker.join)
                raise
        return connection

    async def _make_or_check(self, connection: aiosqlite.Connection) -> None:
        async with self._alone(connection):
            [[is_there]] = await connection.execute_fetchall(_FIND_VERSION)
            found = 0
            if is_there:
                [[found]] = await connection.execute_fetchall(
                    "SELECT number FROM pumphouse_outbox_version"
                )
            elif self._make is MakeChannels.CREATE:
                for statement in _TABLES:
                    await connection.execute(statement)
                found = VERSION
        if found != VERSION:
            remedy = "it is of a newer Pumphouse; upgrade"
            if not found:
                remedy = "it has no outbox; open it once with make=MakeChannels.CREATE"
            raise ConfigurationError("SqliteOutbox.path", self._path, remedy)

    async def aclose(self) -> None:
        self._told.clear()
        watching, self._watching, self._notice = self._watching, None, None
        if watching is not None:
            watching.cancel()
            await asyncio.wait([watching])
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()

    # What a relay needs.

    async def watch(self, told: Told) -> None:
        self._told.add(told)
        if self._watching is None or self._watching.done():
            self._watching = asyncio.create_task(self._watch(), name="outbox watch")

    def unwatch(self, told: Told) -> None:
        self._told.discard(told)

    async def _watch(self) -> None:
        """Look whether anything was committed, by whomever: that takes SQLite microseconds."""
        loop, posted = asyncio.get_running_loop(), asyncio.Event()
        # Posts may be written in any thread.
        self._notice = lambda: loop.call_soon_threadsafe(posted.set)
        version, lively_until_s = -1, 0.0
        while True:
            with suppress(StorageFailed):
                [[found]] = await self._fetch("PRAGMA data_version")
                if found != version:
                    version, lively_until_s = found, self._clock.now_s() + _LIVELY_S
                    for told in self._told:
                        told(None)
            is_lively = self._clock.now_s() < lively_until_s
            with suppress(TimeoutError):
                async with self._clock.timeout(_POLL_S if is_lively else _IDLE_POLL_S):
                    await posted.wait()
                    lively_until_s = self._clock.now_s() + _LIVELY_S
                    posted.clear()
                    await self._clock.sleep(_POLL_S)

    async def destinations(self) -> Sequence[str]:
        return [destination for [destination] in await self._fetch(_DESTINATIONS)]

    @asynccontextmanager
    async def taken(self, wanted: RowsWanted) -> AsyncIterator[RowBatch | None]:
        if not await self._rows(attrs.evolve(wanted, max_count=1)):
            # Found without a write.
            yield _SqliteBatch(self, wanted, "", ())
            return
        owner = new_id()
        if not await self._lease(wanted.destination, owner):
            yield None
            return
        renewing = asyncio.create_task(self._renew(wanted.destination, owner), name="outbox lease")
        batch = None
        try:
            # After the lease: what the relay before has sent is gone by now.
            batch = _SqliteBatch(self, wanted, owner, await self._rows(wanted))
            yield batch
        finally:
            renewing.cancel()
            await asyncio.wait([renewing])
            if batch is None or not batch.is_settled:
                await to_the_end(self._release(wanted.destination, owner))

    async def _lease(self, destination: str, owner: str) -> bool:
        given = {"destination": destination, "owner": owner, "lease_s": LEASE_S}
        async with self._writing() as connection:
            cursor = await connection.execute(_LEASE, {**given, "now_s": self._clock.time_s()})
            return cursor.rowcount == 1

    async def _renew(self, destination: str, owner: str) -> None:
        while True:
            await self._clock.sleep(LEASE_S / 3)
            with suppress(StorageFailed):
                async with self._writing() as connection:
                    until_s = self._clock.time_s() + LEASE_S
                    await connection.execute(_RENEW, (until_s, destination, owner))

    async def _release(self, destination: str, owner: str) -> None:
        # What is not released runs out by itself.
        with suppress(StorageFailed):
            async with self._writing() as connection:
                await connection.execute(_RELEASE, (destination, owner))

    async def _rows(self, wanted: RowsWanted) -> list[WaitingRow]:
        found = await self._fetch(
            _TAKE.replace("{ids}", "" if wanted.ids is None else _ONLY),
            {
                "destination": wanted.destination,
                "without": _json(wanted.without),
                "without_lanes": _json(wanted.without_lanes),
                "most": wanted.max_count,
                "most_bytes": MAX_BYTES,
                **({} if wanted.ids is None else {"ids": _hexadecimal(wanted.ids)}),
            },
        )
        now_s = self._clock.time_s()
        return [
            WaitingRow(
                position=position,
                id=_text(id_),
                lane=lane,
                attempts=attempts,
                age_s=max(now_s - posted_at_s, 0.0),
                delay_s=max((due_at_s or now_s) - now_s, 0.0),
                packed=packed,
            )
            for position, id_, lane, attempts, posted_at_s, due_at_s, packed in found
        ]

    async def settled(self, wanted: RowsWanted, owner: str, relayed: Relayed) -> None:
        """Write what became of a batch, and let go of its destination."""
        now_s = self._clock.time_s()
        gone = [(each.position,) for each in relayed.sent]
        aside = [(each.position,) for each, _ in relayed.set_aside]
        reasons = [(reason, now_s, each.position) for each, reason in relayed.set_aside]
        async with self._writing() as connection:
            if self._keep_s is not None:
                await connection.executemany(_KEEP, [(now_s, *each) for each in gone])
            await connection.executemany(_ASIDE, reasons)
            await connection.executemany(_GONE, [*gone, *aside])
            await connection.executemany(_REFUSED, [(each.position,) for each in relayed.refused])
            await connection.execute(_RELEASE, (wanted.destination, owner))

    async def prune(self) -> None:
        if self._keep_s is None:
            return
        count = _PRUNED
        while count == _PRUNED:
            async with self._writing() as connection:
                before_s = self._clock.time_s() - self._keep_s
                count = (await connection.execute(_PRUNE, (before_s, _PRUNED))).rowcount

    # What operators need.

    async def stats(self) -> Sequence[DestinationStats]:
        now_s = self._clock.time_s()
        return [
            DestinationStats(
                destination=destination,
                waiting=waiting,
                oldest_age_s=None if since_s is None else max(now_s - since_s, 0.0),
                set_aside=set_aside,
            )
            for destination, waiting, since_s, set_aside in await self._fetch(_STATS)
        ]

    async def set_aside(self, *, max_count: int = 1_000) -> Sequence[SetAside]:
        return [
            SetAside(
                position=position,
                id=_text(id_),
                destination=destination,
                reason=reason,
                attempts=attempts,
                posted_at_s=posted_at_s,
                set_aside_at_s=set_aside_at_s,
            )
            for position, id_, destination, reason, attempts, posted_at_s, set_aside_at_s in (
                await self._fetch(_LIST, (max_count,))
            )
        ]

    async def retry(self, ids: Sequence[str] | None) -> int:
        given = {"ids": None if ids is None else _hexadecimal(ids)}
        async with self._writing() as connection:
            count = (await connection.execute(_RETRY, given)).rowcount
            await connection.execute(_DROP, given)
        if self._notice is not None:
            self._notice()
        return count

    async def drop(self, ids: Sequence[str] | None) -> int:
        given = {"ids": None if ids is None else _hexadecimal(ids)}
        async with self._writing() as connection:
            return (await connection.execute(_DROP, given)).rowcount

    async def find(self, ids: Sequence[str]) -> Mapping[str, Sequence[str]]:
        found: dict[str, list[str]] = {}
        for destination, id_ in await self._fetch(_FIND, {"ids": _hexadecimal(ids)}):
            found.setdefault(destination, []).append(_text(id_))
        return found

    # The file.

    async def _fetch(self, sql: str, given: Any = ()) -> Sequence[Sequence[Any]]:
        connection = self._require_open()
        with translated(self._path):
            return list(await connection.execute_fetchall(sql, given))

    @asynccontextmanager
    async def _writing(self) -> AsyncIterator[aiosqlite.Connection]:
        connection = self._require_open()
        async with self._alone(connection):
            yield connection

    @asynccontextmanager
    async def _alone(self, connection: aiosqlite.Connection) -> AsyncIterator[None]:
        async with self._lock, atomic(connection, self._path):
            with translated(self._path):
                yield

    def _require_open(self) -> aiosqlite.Connection:
        if self._connection is None:
            raise StorageFailed(self._path, "the outbox is closed; use it inside `async with app:`")
        return self._connection


class _SqliteBatch:
    def __init__(
        self, outbox: SqliteOutbox, wanted: RowsWanted, owner: str, rows: Sequence[WaitingRow]
    ) -> None:
        self._outbox = outbox
        self._wanted = wanted
        self._owner = owner
        self.rows = rows
        size = sum(len(each.packed) for each in rows)
        self.is_all = len(rows) < wanted.max_count and size <= MAX_BYTES
        self.is_settled = False

    async def settle(self, relayed: Relayed) -> None:
        await self._outbox.settled(self._wanted, self._owner, relayed)
        self.is_settled = True


def _uri_of(path: str) -> str:
    return Path(path).absolute().as_uri()


def _octets(id_: str) -> bytes:
    return id_.encode("utf-8", "surrogatepass")


def _text(octets: bytes) -> str:
    return octets.decode("utf-8", "surrogatepass")


def _json(numbers: Sequence[int]) -> str:
    return f"[{','.join(map(str, numbers))}]"


def _hexadecimal(ids: Sequence[str]) -> str:
    """As JSON, of what `hex` makes of ids, which may be any text."""
    quoted = [f'"{_octets(each).hex().upper()}"' for each in ids]
    return f"[{','.join(quoted)}]"
