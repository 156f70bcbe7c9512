"""The connections to one database: a few, made when they are needed, and one that listens.

Every call of the gateway is one statement, committed by itself: it needs no connection of its own
and works through a pooler that gives each transaction another one.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from functools import cache
from typing import Any, Final, TypeAlias

import attrs

from ..backoff import UNREACHABLE
from ..clock import Clock
from ..errors import ConfigurationError, ConnectionFailed, PumpError, Throttled
from ..tasks import BackgroundTasks, in_thread, look_at
from ..versions import Packages
from .arrays import ARRAYS
from .errors import connect_fault, fault_of
from .schema import FIND_TABLE, LOCK, Component, named
from .settings import Listen, PostgresSettings

PACKAGES: Final = Packages(extra="postgres", versions={"psycopg": ">=3.2,<4"})
LOWEST_SERVER: Final = 130_000
_CLOSE_S: Final = 2.0
"""How long closing waits for statements that are under way."""

# psycopg's, which would be loaded for its type's sake.
Connection: TypeAlias = Any


@attrs.frozen
class Statement:
    """A call of one of our functions, for one queue."""

    sql: str
    operation: str
    queue: str = ""


# Each statement is to see what was committed before it, whatever the role's default is.
_BEGIN: Final = Statement("BEGIN ISOLATION LEVEL READ COMMITTED", "begin")
_COMMIT: Final = Statement("COMMIT", "commit")


class Database:
    """Statements to one database. Safe for many tasks of one event loop."""

    def __init__(self, settings: PostgresSettings, clock: Clock, *, setting: str = "") -> None:
        """`setting` is what each direct connection is told first: behind a pooler it would be
        other programs' setting too.
        """
        self.settings = settings
        self.clock = clock
        self._setting = Statement(setting, "connect")
        self.tasks = BackgroundTasks("postgres")
        self.is_open = False
        """Whether receives may wait. What is under way may use connections for a moment longer."""
        self._is_ended = True
        self.is_pooled: bool | None = None
        """Whether something between us and the server shares its connections; None before the
        first one was made."""
        self.under_way = 0
        """How many statements and attempts to connect are not answered."""
        self.counts: Counter[str] = Counter()
        """How many statements there were, by what they do."""
        self._idle: list[Connection] = []
        self._all: set[Connection] = set()
        self._free = asyncio.Semaphore(settings.max_connections)
        self._failure_count = 0
        self._last_fault: str | None = None
        self._next_attempt_at_s = 0.0

    @property
    def listens(self) -> bool:
        """Whether waiting receives are told of messages."""
        if self.settings.listen is Listen.AUTO:
            return not self.is_pooled
        return self.settings.listen is Listen.ON

    async def open(self) -> None:
        """Connect once, to see that it can be done."""
        if self.is_open:
            return
        await in_thread(PACKAGES.check_installed)
        await in_thread(_load_driver)
        self.is_open, self._is_ended = True, False
        try:
            connection = await self._take()
            self._give_back(connection)
        except BaseException:
            self.is_open, self._is_ended = False, True
            raise

    async def aclose(self) -> None:
        """Give statements that are under way a moment, then close every connection."""
        self.is_open = False
        with suppress(TimeoutError):
            async with self.clock.timeout(_CLOSE_S):
                await self.tasks.finish()
        self._is_ended = True
        await self.tasks.abort()
        for connection in list(self._all):
            self._discard(connection)
        self._idle.clear()
        await self.tasks.finish()

    async def call(self, statement: Statement, *arguments: object) -> list[Sequence[Any]]:
        """The rows of a statement. Cancelled, it goes on in the background."""
        work = self.tasks.start(self.run(statement, arguments), statement.operation)
        return await asyncio.shield(work)

    async def run(self, statement: Statement, arguments: Sequence[object]) -> list[Sequence[Any]]:
        """The same, to be cancelled by nothing but the end of the gateway."""
        connection = await self._take()
        try:
            rows = await self.execute(connection, statement, arguments)
        except BaseException:
            self._give_back(connection)
            raise
        self._give_back(connection)
        return rows

    async def connect(self) -> Connection:
        """A connection of the caller's own, counted by nothing."""
        connect, error_type = _driver()
        self.under_way += 1
        try:
            async with self.clock.timeout(self.settings.connect_timeout_s):
                connection = await connect(self.settings.connection)
        except TimeoutError as error:
            limit = f"no connection within {self.settings.connect_timeout_s:g} s"
            raise ConnectionFailed(self.settings.target, limit) from error
        except (error_type, OSError) as error:
            code = getattr(error, "sqlstate", None)
            password = self.settings.password
            secrets = () if password is None else (password.reveal(),)
            raise connect_fault(
                error, code=code, target=self.settings.target, secrets=secrets
            ) from error
        finally:
            self.under_way -= 1
        return connection

    @asynccontextmanager
    async def lent(self) -> AsyncIterator[Connection]:
        """A connection for the block alone, which ends the transactions that it begins; one that is
        left open is undone with its connection.
        """
        connection = await self._take()
        try:
            yield connection
        finally:
            # 0 is idle.
            if not connection.closed and connection.info.transaction_status:
                _sever(connection)
                self._discard(connection)
            self._give_back(connection)

    def abandon(self) -> None:
        """Let go of the connections of an event loop that is over, and was not waited for."""
        self.is_open, self._is_ended = False, True
        for connection in self._all:
            connection.pgconn.finish()
        self._all.clear()
        self._idle.clear()

    # Several statements that are one.

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Transaction]:
        """Commit what the block does, or nothing of it: no answer to a statement, a cancellation,
        or an error of the block's own undo all of it.
        """
        connection = await self._take()
        try:
            begun = Transaction(self, connection)
            await begun.run(_BEGIN)
            yield begun
            await begun.run(_COMMIT)
        except BaseException:
            # What the server has begun ends with its connection.
            _sever(connection)
            self._discard(connection)
            raise
        finally:
            self._give_back(connection)

    # Tables of ours.

    async def version_of(self, component: Component) -> int:
        """The version that is there, 0 for none."""
        find = Statement(FIND_TABLE, "look for the schema")
        [[is_there]] = await self.call(find, self.settings.schema, component.version_table)
        if not is_there:
            return 0
        return int((await self.call(self._get_version(component)))[0][0])

    async def make_schema(self, component: Component) -> None:
        """Make the tables, or bring them up to date; does nothing where they are."""
        if (found := await self.version_of(component)) < component.version:
            work = self.tasks.start(self._make_schema(component), "make the schema")
            await asyncio.shield(work)
        else:
            component.check(found, self.settings.schema)

    async def check_schema(self, component: Component) -> bool:
        """Whether they are there; `ConfigurationError` when they are of another version."""
        if found := await self.version_of(component):
            component.check(found, self.settings.schema)
        return found > 0

    async def _make_schema(self, component: Component) -> None:
        schema, what = self.settings.schema, "make the schema"
        async with self.transaction() as transaction:
            await transaction.run(Statement(named(LOCK, schema), what))
            # Looked at again: another process may have made it meanwhile.
            find = Statement(FIND_TABLE, what)
            [[is_there]] = await transaction.run(find, schema, component.version_table)
            found = 0
            if is_there:
                found = (await transaction.run(self._get_version(component)))[0][0]
            if found < component.version:
                sql = await in_thread(component.statements, found)
                await transaction.run(Statement(named(sql, schema), what))

    def _get_version(self, component: Component) -> Statement:
        return Statement(named(component.get_version, self.settings.schema), "look at the schema")

    # Connections.

    async def execute(
        self, connection: Connection, statement: Statement, arguments: Sequence[object]
    ) -> list[Sequence[Any]]:
        """The rows of a statement on this connection, which is lost when it does not answer."""
        _, error_type = _driver()
        self.under_way += 1
        self.counts[statement.operation] += 1
        limit_s = self.settings.request_timeout_s
        work = asyncio.ensure_future(_rows(connection, statement.sql, arguments))
        try:
            async with self.clock.timeout(limit_s):
                return await asyncio.shield(work)
        except TimeoutError as error:
            raise ConnectionFailed(
                self.settings.target, f"{statement.operation}: no answer within {limit_s:g} s"
            ) from error
        except UnicodeEncodeError as error:
            remedy = "half a surrogate pair is no character; name a queue in text that UTF-8 has"
            raise ConfigurationError("queue", statement.queue, remedy) from error
        except error_type as error:
            if connection.closed:
                self._lose()
            raise fault_of(
                error,
                code=getattr(error, "sqlstate", None),
                target=self.settings.target,
                queue=statement.queue,
                operation=statement.operation,
            ) from error
        finally:
            self.under_way -= 1
            if not work.done():
                work.add_done_callback(look_at)
                _sever(connection)

    async def _take(self) -> Connection:
        try:
            async with self.clock.timeout(self.settings.request_timeout_s):
                await self._free.acquire()
        except TimeoutError:
            most = self.settings.max_connections
            raise Throttled(
                f"{self.settings.target} (all {most} connections were busy for too long; raise "
                f"max_connections)"
            ) from None
        try:
            while self._idle:
                connection = self._idle.pop()
                if not connection.closed:
                    return connection
                self._all.discard(connection)
            return await self._connect()
        except BaseException:
            self._free.release()
            raise

    async def _connect(self) -> Connection:
        self._require_open()
        if self._last_fault is not None and self.clock.now_s() < self._next_attempt_at_s:
            # As a server that is away would be asked by every caller at once.
            raise ConnectionFailed(self.settings.target, self._last_fault)
        try:
            connection = await self.connect()
            self._all.add(connection)
            if self.is_pooled is None:
                await self._look_at_new(connection)
        except PumpError as error:
            self._failure_count += 1
            if isinstance(error, ConnectionFailed):
                self._last_fault = error.detail
            pause_s = UNREACHABLE.delay_s(self._failure_count, self.clock.chance())
            self._next_attempt_at_s = self.clock.now_s() + pause_s
            raise
        self._failure_count, self._last_fault = 0, None
        # Prepared statements belong to a server's connection, and behind a pooler to no one.
        connection.prepare_threshold = None if self.is_pooled else 0
        if self._setting.sql and not self.is_pooled:
            await self._tell(connection)
        self._require_open()
        return connection

    async def _tell(self, connection: Connection) -> None:
        try:
            await self.execute(connection, self._setting, ())
        except BaseException:
            self._discard(connection)
            raise

    def _require_open(self) -> None:
        if self._is_ended:
            raise ConnectionFailed(self.settings.target, "the gateway is closed")

    async def _look_at_new(self, connection: Connection) -> None:
        try:
            await self._look_at_server(connection)
        except BaseException:
            # Cancelled, too: nothing else knows of it yet.
            self._discard(connection)
            raise

    async def _look_at_server(self, connection: Connection) -> None:
        version = connection.info.server_version
        if version < LOWEST_SERVER:
            remedy = f"use PostgreSQL {LOWEST_SERVER // 10_000} or newer"
            raise ConfigurationError("server", version, remedy)
        look = Statement("SELECT pg_backend_pid()", "connect")
        [[process]] = await self.execute(connection, look, ())
        # A pooler gives out numbers of its own.
        self.is_pooled = process != connection.info.backend_pid

    def _give_back(self, connection: Connection) -> None:
        if connection in self._all:
            if connection.closed or connection.lock.locked() or self._is_ended:
                self._discard(connection)
            else:
                self._idle.append(connection)
        self._free.release()

    def _lose(self) -> None:
        """One connection was lost, and as a rule all of them: the next calls make new ones."""
        for connection in self._idle:
            self._discard(connection)
        self._idle.clear()

    def _discard(self, connection: Connection) -> None:
        if connection in self._all:
            self._all.discard(connection)
            self.tasks.start(_close(connection), "close")


class Transaction:
    """Statements on one connection, between `BEGIN` and `COMMIT`."""

    def __init__(self, database: Database, connection: Connection) -> None:
        self._database = database
        self._connection = connection

    async def run(self, statement: Statement, *arguments: object) -> list[Sequence[Any]]:
        """The rows of a statement."""
        return await self._database.execute(self._connection, statement, arguments)


async def _rows(
    connection: Connection, sql: str, arguments: Sequence[object]
) -> list[Sequence[Any]]:
    cursor = connection.cursor(binary=bool(arguments))
    # Scripts of several statements have no arguments, and cannot be prepared.
    await cursor.execute(sql, arguments or None, prepare=None if arguments else False)
    return await cursor.fetchall() if cursor.description is not None else []


async def _close(connection: Connection) -> None:
    # Not while a statement that was given up reads from its socket: it ends first.
    async with connection.lock:
        await connection.close()


def _sever(connection: Connection) -> None:
    """End a connection under a statement that waits for its answer. Cancelled, the statement would
    ask the server to stop, and wait for that.
    """
    with suppress(OSError), socket.socket(fileno=os.dup(connection.fileno())) as twin:
        twin.shutdown(socket.SHUT_RDWR)


def _load_driver() -> None:
    _driver()


@cache
def _driver() -> tuple[Callable[[dict[str, Any]], Any], type[Exception]]:
    """How to connect, and the root of what the driver raises."""
    import psycopg
    from psycopg.adapt import AdaptersMap, Dumper
    from psycopg.pq import Format

    class _ArrayDumper(Dumper):
        format = Format.BINARY

        def dump(self, obj: Any) -> bytes:
            data: bytes = obj.data
            return data

    adapters = AdaptersMap(psycopg.adapters)
    for kind, number in ARRAYS.items():
        dumper = type(f"_{kind.__name__}Dumper", (_ArrayDumper,), {"oid": number})
        adapters.register_dumper(kind, dumper)

    async def connect(given: dict[str, Any]) -> Any:
        return await psycopg.AsyncConnection.connect(
            **given, autocommit=True, prepare_threshold=None, context=_Context()
        )

    class _Context:
        def __init__(self) -> None:
            self.adapters = adapters
            self.connection = None

    return connect, psycopg.Error


# The connection that listens.


class Listener:
    """Hears what the functions tell, as long as the gateway is open. One connection for all queues.

    | it is     | when                          | and then                                       |
    |-----------|-------------------------------|------------------------------------------------|
    | off       | there is a pooler, or closed  | nothing is told                                |
    | listening | connected                     | `told` is called with each payload             |
    | lost      | the connection ended          | `lost` is called; it connects again, with      |
    |           |                               | pauses, and calls `found` when it listens      |
    """

    def __init__(
        self,
        database: Database,
        *,
        told: Callable[[str], object],
        lost: Callable[[ConnectionFailed], object],
        found: Callable[[], object],
        channel: str | None = None,
    ) -> None:
        """`channel` is that of the schema's name, unless another one is given."""
        self._database = database
        self._channel = channel or database.settings.schema
        self._told = told
        self._lost = lost
        self._found = found
        self._connection: Connection = None
        self._number = -1
        self._again: asyncio.Task[None] | None = None

    @property
    def is_listening(self) -> bool:
        """Whether everything that is told is heard."""
        return self._connection is not None

    async def start(self) -> None:
        """Listen from now on."""
        if self._connection is None:
            await self._connect()

    async def aclose(self) -> None:
        """Hear nothing more."""
        if self._again is not None:
            self._again.cancel()
            await asyncio.wait([self._again])
            self._again = None
        connection, self._connection = self._connection, None
        if connection is not None:
            asyncio.get_running_loop().remove_reader(self._number)
            await connection.close()

    async def _connect(self) -> None:
        database = self._database
        connection = await database.connect()
        try:
            database.under_way += 1
            async with database.clock.timeout(database.settings.connect_timeout_s):
                await connection.execute(f'LISTEN "{self._channel}"')
        except TimeoutError as error:
            await connection.close()
            raise ConnectionFailed(database.settings.target, "LISTEN: no answer") from error
        except _driver()[1] as error:
            await connection.close()
            raise ConnectionFailed(database.settings.target, str(error)) from error
        except asyncio.CancelledError:
            _sever(connection)
            database.tasks.start(_close(connection), "close")
            raise
        finally:
            database.under_way -= 1
        self._connection, self._number = connection, connection.fileno()
        asyncio.get_running_loop().add_reader(self._number, self._read, connection)
        self._found()
        self._read(connection)

    def _read(self, connection: Connection) -> None:
        pgconn = connection.pgconn
        try:
            pgconn.consume_input()
            while (told := pgconn.notifies()) is not None:
                self._told(told.extra.decode())
        except _driver()[1] as error:
            self._end(connection, str(error))

    def _end(self, connection: Connection, why: str) -> None:
        if connection is not self._connection:
            return
        # By its number: the driver may have closed the socket already.
        asyncio.get_running_loop().remove_reader(self._number)
        self._connection = None
        connection.pgconn.finish()
        self._again = asyncio.create_task(self._listen_again(), name="postgres listen")
        self._lost(ConnectionFailed(self._database.settings.target, " ".join(why.split())))

    async def _listen_again(self) -> None:
        clock, failure_count = self._database.clock, 0
        while True:
            failure_count += 1
            await clock.sleep(UNREACHABLE.delay_s(failure_count, clock.chance()))
            with suppress(PumpError):
                await self._connect()
                return
