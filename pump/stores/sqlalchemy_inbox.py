"""An inbox in the database of an application that uses SQLAlchemy: the mark is part of a session.

In PostgreSQL the table is that of `PostgresInbox`, in SQLite that of `SqliteInbox`: either of two
programs may use either class.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, nullcontext
from datetime import timedelta
from itertools import count
from typing import TYPE_CHECKING, Any, Final, Protocol, Self

from ..errors import ConfigurationError, StorageFailed, text_of
from ..outcome import DeferMessage
from ..postgres.errors import shortened
from ..postgres.schema import FIND_TABLE, LOCK, named
from ..subscription import MakeChannels
from ..tasks import to_the_end
from .inbox import Claim, Held, Inbox, check_retention, current_claim
from .inbox_rows import FENCE, INBOX, MARK_OWN, InboxCall, InboxRows, TimeOf, check_time_of
from .sqlite_inbox import InboxTable, Mark, SqliteInbox

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import (
        AsyncConnection,
        AsyncEngine,
        AsyncSession,
        async_sessionmaker,
    )

_SCHEMA: Final = re.compile(r"[a-z_][a-z0-9_]{0,47}")
_ENGINE: Final = (
    "give an AsyncEngine or an async_sessionmaker of PostgreSQL (postgresql+psycopg, "
    "postgresql+asyncpg) or SQLite (sqlite+aiosqlite)"
)


class SqlAlchemyInbox:
    """Claims and marks in the database of this engine, opened by the first use.

    `schema` is where the table is in PostgreSQL. Time is the server's, or in SQLite the machine's;
    `time_of="caller"` takes the caller's, for tests on a virtual clock. The engine is the
    application's to dispose of. For one event loop at a time.
    """

    def __init__(
        self,
        engine: AsyncEngine | async_sessionmaker[AsyncSession],
        *,
        retention: timedelta = timedelta(days=7),
        schema: str = "pumphouse",
        make_tables: MakeChannels = MakeChannels.CREATE,
        time_of: TimeOf = "server",
    ) -> None:
        from sqlalchemy.ext.asyncio import AsyncEngine, async_sessionmaker

        sessions = engine if isinstance(engine, async_sessionmaker) else None
        found: Any = engine if sessions is None else sessions.kw.get("bind")
        if not isinstance(found, AsyncEngine):
            raise ConfigurationError("SqlAlchemyInbox.engine", engine, _ENGINE)
        check_retention("SqlAlchemyInbox.retention", retention)
        check_time_of("SqlAlchemyInbox.time_of", time_of)
        if not _SCHEMA.fullmatch(schema):
            remedy = "use lower case letters, digits and _"
            raise ConfigurationError("SqlAlchemyInbox.schema", schema, remedy)
        self._engine = found
        self._sessions = sessions or async_sessionmaker(found, expire_on_commit=False)
        self._store: _Store
        match found.dialect.name:
            case "postgresql":
                make = MakeChannels(make_tables)
                self._store = _InPostgres(found, schema, make, retention=retention, time_of=time_of)
            case "sqlite":
                self._store = _InSqlite(found, retention)
            case dialect:
                raise ConfigurationError("SqlAlchemyInbox.engine", dialect, _ENGINE)

    def __repr__(self) -> str:
        return f"SqlAlchemyInbox({_shown(self._engine)!r})"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def claim(self, key: str, *, owner: str, now_s: float, lease_s: float) -> Claim:
        inbox = await self._store.opened()
        return await inbox.claim(key, owner=owner, now_s=now_s, lease_s=lease_s)

    async def extend(self, key: str, *, owner: str, now_s: float, lease_s: float) -> bool:
        inbox = await self._store.opened()
        return await inbox.extend(key, owner=owner, now_s=now_s, lease_s=lease_s)

    async def complete(self, key: str, *, owner: str, now_s: float) -> None:
        inbox = await self._store.opened()
        await inbox.complete(key, owner=owner, now_s=now_s)

    async def release(self, key: str, *, owner: str) -> None:
        inbox = await self._store.opened()
        await inbox.release(key, owner=owner)

    async def aclose(self) -> None:
        """Wait for what is under way; the engine stays open."""
        await self._store.aclose()

    @asynccontextmanager
    async def session(self) -> AsyncIterator[AsyncSession]:
        """A session whose commit, at the end of the block, includes the mark that this message was
        handled.

        For an async handler behind `OnceOnly(inbox)`, once a handling. Either both are committed
        or neither; the block flushes, and does not commit, roll back or close. A handler whose
        claim was taken over meanwhile is fenced off: `DeferMessage` is raised before the block
        runs. Where the answer to the commit is lost, an error is raised, and on the next delivery
        the mark decides. In SQLite writers take turns, so keep the block short.
        """
        context, held = current_claim(self)
        if held.is_recorded:
            raise ConfigurationError(
                "SqlAlchemyInbox.session", self._engine, "one session a handling; join the two"
            )
        await self._store.opened()
        async with self._store.turn(), self._sessions() as session:
            begun = await session.begin()
            try:
                fenced = await self._store.fence(session, held, context.clock.time_s())
                yield session
                await session.flush()
                if session.get_transaction() is not begun or not begun.is_active:
                    raise StorageFailed(
                        _shown(self._engine),
                        "the block ended the transaction itself; leave that to it",
                    )
                await self._store.mark(session, held, context.clock.time_s(), fenced)
                await session.commit()
            except BaseException:
                # Before the claim is released: until then its row is locked.
                await to_the_end(session.rollback())
                raise
            finally:
                self._store.unlock(held)
            held.is_recorded = True


class _Store(Protocol):
    """What an inbox does in one kind of database."""

    async def opened(self) -> Inbox:
        """What has the claims and marks outside of sessions, its tables there."""

    def turn(self) -> AbstractAsyncContextManager[object]:
        """Held while a session is open."""

    async def fence(self, session: AsyncSession, held: Held, now_s: float) -> str:
        """Lock the claim's row, or raise `DeferMessage`."""

    async def mark(self, session: AsyncSession, held: Held, now_s: float, fenced: str) -> None:
        """Mark it as done, in the session's transaction."""

    def unlock(self, held: Held) -> None:
        """The transaction has ended."""

    async def aclose(self) -> None:
        """Let go of everything but the engine."""


# In PostgreSQL.


class _InPostgres:
    def __init__(
        self,
        engine: AsyncEngine,
        schema: str,
        make_tables: MakeChannels,
        *,
        retention: timedelta,
        time_of: TimeOf,
    ) -> None:
        self._engine = engine
        # A claim is one statement, seen by all as soon as it has run.
        self._committing = engine.execution_options(isolation_level="AUTOCOMMIT")
        self._schema = schema
        self._make_tables = make_tables
        self._is_ready = False
        self._rows = InboxRows(
            self._run, retention_s=retention.total_seconds(), time_of=time_of, arrays=_lists
        )

    async def opened(self) -> Inbox:
        if not self._is_ready:
            with _translated(self._engine):
                await self._see_to_tables()
            self._is_ready = True
        return self

    def turn(self) -> AbstractAsyncContextManager[object]:
        return nullcontext()

    async def claim(self, key: str, *, owner: str, now_s: float, lease_s: float) -> Claim:
        return await self._rows.claim(key, owner=owner, now_s=now_s, lease_s=lease_s)

    async def extend(self, key: str, *, owner: str, now_s: float, lease_s: float) -> bool:
        return await self._rows.extend(key, owner=owner, now_s=now_s, lease_s=lease_s)

    async def complete(self, key: str, *, owner: str, now_s: float) -> None:
        await self._rows.complete(key, owner=owner, now_s=now_s)

    async def release(self, key: str, *, owner: str) -> None:
        await self._rows.release(key, owner=owner)

    async def fence(self, session: AsyncSession, held: Held, now_s: float) -> str:
        arguments = self._rows.fence(held, now_s)
        with _translated(self._engine):
            connection = await session.connection()
            rows = await self._execute(connection, FENCE, arguments)
        if not rows:
            # The claim ran out and was pruned: taken again, or another's by now.
            await self.claim(held.key, owner=held.owner, now_s=now_s, lease_s=held.lease_s)
            with _translated(self._engine):
                rows = await self._execute(connection, FENCE, arguments)
        if not rows:
            raise DeferMessage(timedelta(0))
        transaction = self._rows.transaction_of(held, rows[0])
        self._rows.lock(held)
        return transaction

    async def mark(self, session: AsyncSession, held: Held, now_s: float, fenced: str) -> None:
        arguments = self._rows.mark_own(held, now_s, fenced)
        with _translated(self._engine):
            rows = await self._execute(await session.connection(), MARK_OWN, arguments)
        if not rows:
            raise StorageFailed(
                _shown(self._engine), "the block ended the transaction itself; leave that to it"
            )

    def unlock(self, held: Held) -> None:
        self._rows.unlock(held)

    async def aclose(self) -> None:
        await self._rows.finish()

    async def _run(
        self, sql: str, operation: str, arguments: Sequence[object]
    ) -> Sequence[Sequence[Any]]:
        with _translated(self._engine):
            async with self._committing.connect() as connection:
                return await self._execute(connection, sql, arguments)

    async def _execute(
        self, connection: AsyncConnection, sql: str, arguments: Sequence[object]
    ) -> Sequence[Sequence[Any]]:
        from sqlalchemy import text

        numbers = count()
        given = re.sub("%b", lambda _: f":p{next(numbers)}", named(sql, self._schema))
        values = {f"p{number}": value for number, value in enumerate(arguments)}
        result = await connection.execute(text(given), values)
        return result.all() if result.returns_rows else []

    async def _see_to_tables(self) -> None:
        if self._make_tables is MakeChannels.ASSUME:
            return
        async with self._engine.connect() as connection:
            found = await self._version(connection)
        if found < INBOX.version and self._make_tables is MakeChannels.CREATE:
            async with self._engine.begin() as connection:
                await self._make(connection)
        elif not found:
            remedy = "its inbox is not there; run once with make_tables=MakeChannels.CREATE"
            raise ConfigurationError("schema", self._schema, remedy)
        else:
            INBOX.check(found, self._schema)

    async def _make(self, connection: AsyncConnection) -> None:
        await self._execute(connection, LOCK, ())
        # Looked at again: another process may have made it meanwhile.
        found = await self._version(connection)
        if found < INBOX.version:
            for statement in INBOX.statements(found).split(";"):
                if statement.strip():
                    await self._execute(connection, statement, ())

    async def _version(self, connection: AsyncConnection) -> int:
        names = (self._schema, INBOX.version_table)
        [[is_there]] = await self._execute(connection, FIND_TABLE, names)
        if not is_there:
            return 0
        return int((await self._execute(connection, INBOX.get_version, ()))[0][0])


def _lists(calls: Sequence[InboxCall]) -> tuple[object, ...]:
    return tuple(list(each) for each in zip(*calls, strict=True))


# In SQLite.


class _InSqlite:
    """Claims are a `SqliteInbox`'s, in the same file; the session's connection writes the mark."""

    def __init__(self, engine: AsyncEngine, retention: timedelta) -> None:
        self._engine = engine
        self._retention_s = retention.total_seconds()
        self._inbox = SqliteInbox(engine.url.database or "", retention=retention)
        self._table = InboxTable(engine.url.database or "")

    async def opened(self) -> Inbox:
        return self._inbox

    def turn(self) -> AbstractAsyncContextManager[object]:
        return self._inbox.turn()

    async def fence(self, session: AsyncSession, held: Held, now_s: float) -> str:
        with _translated(self._engine):
            driver = await _driver(session)
            # Read before it is written, a transaction may find that another one wrote meanwhile.
            if not driver.in_transaction:
                await driver.execute("BEGIN IMMEDIATE")
        await self._table.fence(driver, held, now_s)
        return ""

    async def mark(self, session: AsyncSession, held: Held, now_s: float, fenced: str) -> None:
        mark = Mark(held.key, held.owner, now_s + self._retention_s)
        await self._table.complete(await _driver(session), [mark])

    def unlock(self, held: Held) -> None:
        """Nothing: the lock is the file's."""

    async def aclose(self) -> None:
        await self._inbox.aclose()


async def _driver(session: AsyncSession) -> Any:
    raw = await (await session.connection()).get_raw_connection()
    return raw.driver_connection


@contextmanager
def _translated(engine: AsyncEngine) -> Iterator[None]:
    from sqlalchemy.exc import SQLAlchemyError

    try:
        yield
    except (SQLAlchemyError, OSError) as error:
        cause: Any = getattr(error, "orig", None) or error
        raise StorageFailed(_shown(engine), shortened(text_of(cause))) from error


def _shown(engine: AsyncEngine) -> str:
    return engine.url.render_as_string(hide_password=True)
