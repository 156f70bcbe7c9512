"""What the stores in PostgreSQL have in common: tables of their own in one schema, opened by the
first use, and calls that share a statement.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, Generic, TypeVar

from ..clock import SYSTEM_CLOCK
from ..errors import ConfigurationError, ConnectionFailed, PumpError, QueueNotFound, StorageFailed
from ..postgres.database import Database, Statement
from ..postgres.schema import Component, named
from ..postgres.settings import PostgresSettings
from ..subscription import MakeChannels
from ..tasks import BackgroundTasks, to_the_end

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")
NOW_S: Final = "extract(epoch FROM clock_timestamp())::float8"
"""The server's time in SQL, as all stores have it."""
_BY_INDEX: Final = "SET enable_seqscan = off"
"""A plan that is kept must be good when a table that was empty is not any more."""

_SOON_S: Final = 1.0
"""A statement that failed as soon as this was refused by its connection, and did not time out."""


def settings_from(where: str | PostgresSettings) -> PostgresSettings:
    """The settings that a URL stands for."""
    return where if isinstance(where, PostgresSettings) else PostgresSettings.from_url(where)


class PostgresTables:
    """The tables of one store. For one event loop at a time; calls raise `StorageFailed`, and
    `ConfigurationError` where the tables are of another version.
    """

    def __init__(
        self,
        settings: PostgresSettings,
        component: Component,
        make_tables: MakeChannels,
        *,
        setting: str = _BY_INDEX,
    ) -> None:
        self.settings = settings
        self._component = component
        self._make_tables = make_tables
        self._setting = setting
        self._loop: asyncio.AbstractEventLoop | None = None
        self._turn = asyncio.Lock()
        self._database = self._new_database()
        self._is_ready = False

    def statement(self, sql: str, operation: str) -> Statement:
        """A statement with the schema's name in it."""
        return Statement(named(sql, self.settings.schema), operation)

    async def call(self, statement: Statement, *arguments: object) -> list[Sequence[Any]]:
        """The rows of a statement, which may be run twice: where a connection is found lost, as all
        are after the server's restart, another one is made at once. Cancelled, it goes on in the
        background.
        """
        database = await self.opened()
        begun_s = SYSTEM_CLOCK.now_s()
        with self.translated():
            try:
                return await database.call(statement, *arguments)
            except ConnectionFailed:
                if SYSTEM_CLOCK.now_s() - begun_s > _SOON_S:
                    raise
                return await database.call(statement, *arguments)

    async def opened(self) -> Database:
        """The connections, with the tables made or checked as asked for."""
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            # A store of a module may outlive several loops.
            self._database.abandon()
            self._loop, self._turn, self._is_ready = loop, asyncio.Lock(), False
            self._database = self._new_database()
        if not self._is_ready:
            async with self._turn:
                if not self._is_ready:
                    await to_the_end(self._open())
        return self._database

    async def aclose(self) -> None:
        """Close the connections; a later use makes others."""
        self._is_ready = False
        if self._loop is asyncio.get_running_loop():
            async with self._turn:
                await self._database.aclose()
        else:
            self._database.abandon()

    @contextmanager
    def translated(self) -> Iterator[None]:
        """Say what failed as every store says it."""
        target = self.settings.target
        try:
            yield
        except (StorageFailed, ConfigurationError):
            raise
        except QueueNotFound as error:
            self._is_ready = False
            raise StorageFailed(target, self._not_there) from error
        except PumpError as error:
            raise StorageFailed(target, getattr(error, "detail", None) or str(error)) from error

    async def _open(self) -> None:
        database = self._database
        with self.translated():
            await database.open()
            match self._make_tables:
                case MakeChannels.CREATE:
                    await database.make_schema(self._component)
                case MakeChannels.VALIDATE:
                    if not await database.check_schema(self._component):
                        raise ConfigurationError("schema", self.settings.schema, self._not_there)
                case MakeChannels.ASSUME:
                    pass
        self._is_ready = True

    def _new_database(self) -> Database:
        return Database(self.settings, SYSTEM_CLOCK, setting=self._setting)

    @property
    def _not_there(self) -> str:
        table = self._component.version_table
        return (
            f'"{self.settings.schema}".{table} and what belongs to it are not there; run once with '
            f"make_tables=MakeChannels.CREATE as a role that may make them"
        )


class SharedCalls(Generic[_Item, _Result]):
    """Calls that come while a statement is under way share the next one.

    So a single call waits for nothing, and many cost little more than one. `key_of` tells which
    calls cannot be in one statement: of one key there is one in each.
    """

    def __init__(
        self,
        perform: Callable[[Sequence[_Item]], Awaitable[Sequence[_Result]]],
        key_of: Callable[[_Item], bytes],
        *,
        max_count: int = 200,
    ) -> None:
        self._perform = perform
        self._key_of = key_of
        self._max_count = max_count
        self._waiting: list[tuple[_Item, asyncio.Future[_Result]]] = []
        self._tasks = BackgroundTasks("store")
        self._worker: asyncio.Task[None] | None = None
        self._under_way: set[bytes] = set()
        self._is_over = asyncio.Event()

    async def call(self, item: _Item) -> _Result:
        """The result of this one. Cancelled before its statement, it is not called."""
        ended: asyncio.Future[_Result] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, ended))
        if self._worker is None or self._worker.done():
            self._worker = self._tasks.start(self._work(), "shared calls")
        return await ended

    async def finish(self, key: bytes) -> None:
        """Wait for a statement that is under way with a call of this key."""
        if key in self._under_way:
            await self._is_over.wait()

    async def _work(self) -> None:
        while batch := self._next_batch():
            self._under_way = {self._key_of(item) for item, _ in batch}
            self._is_over = asyncio.Event()
            try:
                results = await self._perform([item for item, _ in batch])
            except Exception as error:  # broad: it is what each caller is told
                for _, ended in batch:
                    if not ended.done():
                        ended.set_exception(error)
                continue
            except asyncio.CancelledError:
                for _, ended in batch:
                    ended.cancel()
                raise
            finally:
                self._under_way = set()
                self._is_over.set()
            for (_, ended), result in zip(batch, results, strict=True):
                if not ended.done():
                    ended.set_result(result)

    def _next_batch(self) -> list[tuple[_Item, asyncio.Future[_Result]]]:
        chosen: dict[bytes, tuple[_Item, asyncio.Future[_Result]]] = {}
        left = []
        for call in self._waiting:
            key = self._key_of(call[0])
            if call[1].done():
                continue
            if key in chosen or len(chosen) == self._max_count:
                left.append(call)
            else:
                chosen[key] = call
        self._waiting = left
        # In one order everywhere, so that two machines' statements never wait for each other.
        return [chosen[key] for key in sorted(chosen)]
