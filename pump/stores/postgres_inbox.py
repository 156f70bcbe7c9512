"""An inbox in PostgreSQL, shared by all machines that reach the database.

It may be the application's own database: then the work of a handler and the mark that it was done
can be one transaction (`PostgresInbox.transaction`), which is as close to exactly once as there is.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Self

from ..errors import ConfigurationError, ConnectionFailed, PumpError, StorageFailed
from ..postgres.arrays import doubles, octets
from ..postgres.database import Database, Statement
from ..postgres.schema import named
from ..postgres.settings import PostgresSettings
from ..subscription import MakeChannels
from ..tasks import to_the_end
from .inbox import Claim, Held, check_retention, current_claim
from .inbox_rows import FENCE, INBOX, MARK_OWN, InboxCall, InboxRows, TimeOf, check_time_of
from .postgres_tables import PostgresTables, settings_from

if TYPE_CHECKING:
    from psycopg import AsyncConnection

# A server that cannot reach a machine any more lets go of its locks within half a minute.
_BEGIN: Final = Statement(
    "BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL tcp_keepalives_idle = 10; "
    "SET LOCAL tcp_keepalives_interval = 5; SET LOCAL tcp_keepalives_count = 3",
    "begin",
)
_COMMIT: Final = Statement("COMMIT", "commit")
_ROLLBACK: Final = Statement("ROLLBACK", "roll back")


class PostgresInbox:
    """Claims and marks in the table `inbox` of the database at this URL, opened by the first use.

    A mark is committed before `complete` returns and is kept for `retention`; older ones are
    removed as new ones come. Time is the server's, whatever the clocks of machines say;
    `time_of="caller"` takes the caller's instead, for tests on a virtual clock. The table is made
    in the URL's schema, checked or assumed. For one event loop at a time. Survives pickling: the
    copy connects for itself.
    """

    def __init__(
        self,
        where: str | PostgresSettings,
        *,
        retention: timedelta = timedelta(days=7),
        make_tables: MakeChannels = MakeChannels.CREATE,
        time_of: TimeOf = "server",
    ) -> None:
        self._settings = settings_from(where)
        self._retention = retention
        retention_s = check_retention("PostgresInbox.retention", retention)
        self._make_tables = MakeChannels(make_tables)
        check_time_of("PostgresInbox.time_of", time_of)
        self._time_of = time_of
        self._tables = PostgresTables(self._settings, INBOX, self._make_tables)
        # Handlers that stay long in their transactions keep no claim waiting.
        self._work = PostgresTables(self._settings, INBOX, MakeChannels.ASSUME, setting="")
        self._rows = InboxRows(self._run, retention_s=retention_s, time_of=time_of, arrays=_arrays)

    def __repr__(self) -> str:
        return f"PostgresInbox({self._settings.target!r}, schema={self._settings.schema!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        make = partial(
            PostgresInbox,
            self._settings,
            retention=self._retention,
            make_tables=self._make_tables,
            time_of=self._time_of,
        )
        return make, ()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def claim(self, key: str, *, owner: str, now_s: float, lease_s: float) -> Claim:
        return await self._rows.claim(key, owner=owner, now_s=now_s, lease_s=lease_s)

    async def extend(self, key: str, *, owner: str, now_s: float, lease_s: float) -> bool:
        return await self._rows.extend(key, owner=owner, now_s=now_s, lease_s=lease_s)

    async def complete(self, key: str, *, owner: str, now_s: float) -> None:
        await self._rows.complete(key, owner=owner, now_s=now_s)

    async def release(self, key: str, *, owner: str) -> None:
        await self._rows.release(key, owner=owner)

    async def aclose(self) -> None:
        """Close the connections; a later use makes others."""
        await self._rows.finish()
        await self._tables.aclose()
        await self._work.aclose()

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[AsyncConnection[Any]]:
        """Commit what the block writes together with the mark that this message was handled.

        For an async handler behind `OnceOnly(inbox)`, once a handling. Either both are committed
        when the block ends, or neither; the block does not commit itself. A handler whose claim
        was taken over meanwhile (it stood still for longer than the claim's lease) is fenced off:
        `DeferMessage` is raised before the block runs. Where the answer to the commit is lost, an
        error is raised, and on the next delivery the mark decides. Whatever the handler does
        after the block is not repeated if it fails. Each block has a connection of its own, of
        which there are `max_connections`.
        """
        context, held = current_claim(self)
        if held.is_recorded:
            raise ConfigurationError(
                "PostgresInbox.transaction",
                self._settings.target,
                "one transaction a handling; join the two",
            )
        await self._tables.opened()
        database = await self._work.opened()
        async with AsyncExitStack() as stack:
            now_s = context.clock.time_s()
            connection, transaction = await self._begin(database, stack, held, now_s)
            try:
                self._rows.lock(held)
                with _as_it_was(connection):
                    yield connection
                now_s = context.clock.time_s()
                with self._work.translated():
                    await self._mark(database, connection, held, now_s, transaction)
                    await database.execute(connection, _COMMIT, ())
            except BaseException:
                # Its locks are to be gone when the claim is released.
                await to_the_end(_roll_back(database, connection))
                raise
            finally:
                self._rows.unlock(held)
            held.is_recorded = True

    async def _begin(
        self, database: Database, stack: AsyncExitStack, held: Held, now_s: float
    ) -> tuple[Any, str]:
        """A connection with a transaction that has locked the claim's row, and its number."""
        with self._work.translated():
            try:
                connection = await stack.enter_async_context(database.lent())
                await database.execute(connection, _BEGIN, ())
            except ConnectionFailed:
                # Found lost, as all are after the server's restart: another one is made at once.
                await stack.aclose()
                connection = await stack.enter_async_context(database.lent())
                await database.execute(connection, _BEGIN, ())
        try:
            return connection, await self._fence(database, connection, held, now_s)
        except BaseException:
            await to_the_end(_roll_back(database, connection))
            raise

    async def _fence(self, database: Database, connection: Any, held: Held, now_s: float) -> str:
        fence = self._statement(FENCE, "fence")
        while True:
            with self._work.translated():
                rows = await database.execute(connection, fence, self._rows.fence(held, now_s))
            if rows:
                return self._rows.transaction_of(held, rows[0])
            # The claim ran out and was pruned: taken again, or another's by now.
            await self.claim(held.key, owner=held.owner, now_s=now_s, lease_s=held.lease_s)

    async def _mark(
        self, database: Database, connection: Any, held: Held, now_s: float, transaction: str
    ) -> None:
        mark = self._statement(MARK_OWN, "complete")
        arguments = self._rows.mark_own(held, now_s, transaction)
        is_open = bool(connection.info.transaction_status)
        if not is_open or not await database.execute(connection, mark, arguments):
            raise StorageFailed(
                self._settings.target, "the block ended the transaction itself; leave that to it"
            )

    async def _run(
        self, sql: str, operation: str, arguments: Sequence[object]
    ) -> Sequence[Sequence[Any]]:
        return await self._tables.call(self._statement(sql, operation), *arguments)

    def _statement(self, sql: str, operation: str) -> Statement:
        return Statement(named(sql, self._settings.schema), operation)


@contextmanager
def _as_it_was(connection: Any) -> Iterator[None]:
    factory = connection.row_factory
    try:
        yield
    finally:
        connection.row_factory = factory


async def _roll_back(database: Database, connection: Any) -> None:
    if not connection.closed and connection.info.transaction_status:
        with suppress(PumpError):
            await database.execute(connection, _ROLLBACK, ())


def _arrays(calls: Sequence[InboxCall]) -> tuple[object, ...]:
    keys, owners, nows_s, leases_s = zip(*calls, strict=True)
    return octets(keys), octets(owners), doubles(nows_s), doubles(leases_s)
