"""The Postgres gateway: queues in one schema of a database; and their administration."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from pump.capabilities import Capabilities
from pump.clock import SYSTEM_CLOCK, Clock
from pump.errors import ConnectionFailed, QueueMismatch, QueueNotFound
from pump.findings import Finding, HandlerTimes
from pump.message import Message
from pump.ports import AdminPort, ConsumerPort, Gateway, ProducerPort, QueueStats, SessionPort
from pump.postgres.database import Database, Listener, Statement
from pump.postgres.schema import named
from pump.postgres.settings import PostgresSettings
from pump.subscription import MakeChannels, QueueSpec, Subscription

from .._engine.record import EngineSettings, is_bare
from . import doctor
from .consumer import POSTGRES, PostgresConsumer, PostgresProducer, QueueCalls, Rotation
from .schema import QUEUES
from .session import PostgresSession, accept, let_go
from .waiting import QueueWaiters
from .wire import message_of, rows_of

_RELEASE_S = 2.0
"""How long closing waits for the locks of sessions to be released."""
_POLL_S = 5.0
_DEAF_POLL_S = 0.5


class PostgresGateway:
    """The queues of one schema."""

    def __init__(
        self, settings: PostgresSettings | None = None, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self._settings = settings or PostgresSettings()
        self._clock = clock
        self._database = Database(self._settings, clock)
        self._listener = Listener(
            self._database, told=self._told, lost=self._lost, found=self._found
        )
        self._rotation = Rotation(self._database)
        self._queues: dict[str, QueueCalls] = {}
        self._sessions: set[PostgresSession] = set()

    def __repr__(self) -> str:
        return f"PostgresGateway({self._settings!r})"

    @property
    def capabilities(self) -> Capabilities:
        return POSTGRES

    async def open(self) -> None:
        """Checks the driver's version and the server's."""
        await self._database.open()
        if self._database.listens:
            await self._listener.start()

    async def aclose(self) -> None:
        """Releases the sessions that are still open; what cannot be, runs out by itself."""
        try:
            async with self._clock.timeout(_RELEASE_S):
                open_ones = [each for each in self._sessions if not each.is_over]
                await asyncio.gather(*map(let_go, open_ones))
        except TimeoutError:
            pass
        finally:
            self._sessions.clear()
            await self._listener.aclose()
            closing = self._database.aclose()
            for calls in self._queues.values():
                calls.waiters.close()
            await closing

    def consumer(self, subscription: Subscription) -> ConsumerPort:
        for spec in subscription.queue_specs():
            EngineSettings.from_spec(spec)
        return PostgresConsumer(self._calls(subscription.queue), subscription)

    def producer(self, queue: str) -> ProducerPort:
        return PostgresProducer(self._calls(queue))

    def admin(self) -> AdminPort:
        return PostgresAdmin(self._database)

    async def accept_session(
        self, subscription: Subscription, session: str | None, *, wait_s: float
    ) -> SessionPort | None:
        lease_s = subscription.lease.total_seconds()
        calls = self._calls(subscription.queue)
        accepted = await accept(calls, session, lease_s=lease_s, wait_s=wait_s)
        self._sessions = {each for each in self._sessions if not each.is_over}
        if accepted is not None:
            self._sessions.add(accepted)
        return accepted

    async def examine(
        self, subscriptions: Sequence[Subscription], observed: Mapping[str, HandlerTimes]
    ) -> Sequence[Finding]:
        """Looks for queues that are missing, and for what holds back the server's cleaning."""
        tables, queues = list[Any](), list[Any]()
        if await self._database.check_schema(QUEUES):
            tables = await self._look(doctor.TABLES, self._settings.schema)
            queues = await self._look(doctor.QUEUES)
        seen = doctor.Seen(
            old=await self._look(doctor.OLD, doctor.OLD_TRANSACTION_S),
            prepared=await self._look(doctor.PREPARED, doctor.OLD_TRANSACTION_S),
            connections=await self._look(doctor.CONNECTIONS),
            tables=tables,
            queues=queues,
        )
        target, listens = self._settings.target, self._database.listens
        return doctor.findings(seen, subscriptions, target=target, listens=listens)

    async def _look(self, question: str, *arguments: object) -> list[Sequence[Any]]:
        statement = Statement(named(question, self._settings.schema), "examine")
        return await self._database.call(statement, *arguments)

    def _calls(self, queue: str) -> QueueCalls:
        calls = self._queues.get(queue)
        if calls is None:
            waiters = QueueWaiters(self._clock, poll_s=self._poll_s)
            calls = QueueCalls(self._database, queue, waiters, self._rotation)
            self._queues[queue] = calls
        return calls

    def _poll_s(self) -> float:
        if self._settings.poll_s is not None:
            return self._settings.poll_s
        return _POLL_S if self._listener.is_listening else _DEAF_POLL_S

    # What the listener hears.

    def _told(self, payload: str) -> None:
        queue, _, what = payload.partition(" ")
        for calls in self._queues.values():
            if calls.waiters.queue_id is None or str(calls.waiters.queue_id) == queue:
                calls.waiters.told(what)

    def _lost(self, error: ConnectionFailed) -> None:
        for calls in self._queues.values():
            calls.waiters.fail(error)

    def _found(self) -> None:
        # Told of nothing meanwhile.
        for calls in self._queues.values():
            calls.waiters.low_water.forget()
            calls.waiters.notify()


def from_url(url: str, clock: Clock | None = None) -> Gateway:
    """`postgres://user:password@host:5432/database`; see `PostgresSettings.from_url`."""
    return PostgresGateway(PostgresSettings.from_url(url), SYSTEM_CLOCK if clock is None else clock)


class PostgresAdmin:
    """Looks after the queues of one schema."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._schema_checked = False

    async def ensure(self, spec: QueueSpec, make: MakeChannels) -> None:
        """Making a queue makes the schema too, or brings it up to date, and gives a queue that
        exists the settings that are asked for. Validating changes nothing.
        """
        wanted = EngineSettings.from_spec(spec)
        if make is MakeChannels.CREATE:
            await self._create(wanted, is_name_only=is_bare(spec))
        elif make is MakeChannels.VALIDATE:
            await self._validate(wanted, is_name_only=is_bare(spec))

    async def queues(self) -> Sequence[QueueStats]:
        if not await self._database.check_schema(QUEUES):
            return []
        return await self._stats(None)

    async def stats(self, queue: str) -> QueueStats:
        [stats] = await self._stats(queue)
        return stats

    async def peek(self, queue: str, *, max_count: int = 10) -> Sequence[Message]:
        """Those behind others of their group too; not what is leased or delayed."""
        found = await self._call("SELECT * FROM @.peek(%b, %b)", "peek", queue, max_count)
        return [message_of(row, queue) for row in rows_of(found)]

    async def purge(self, queue: str) -> int:
        """Exact: visible, in flight and delayed alike."""
        [[count]] = await self._call("SELECT @.purge(%b)", "purge", queue)
        return int(count)

    async def _create(self, wanted: EngineSettings, *, is_name_only: bool) -> None:
        await self._database.make_schema(QUEUES)
        if wanted.dead_letter_queue is not None:
            # First, so that there is never a queue whose dead letters have nowhere to go.
            target = EngineSettings(name=wanted.dead_letter_queue)
            await self._declare(target, is_name_only=True)
        await self._declare(wanted, is_name_only=is_name_only)

    async def _declare(self, settings: EngineSettings, *, is_name_only: bool) -> None:
        await self._call(
            "SELECT @.declare(%b, %b, %b, %b, %b, %b, %b)",
            "make the queue",
            settings.name,
            settings.is_lifo,
            settings.is_strict,
            settings.max_receive_count,
            settings.dead_letter_queue,
            float(settings.deduplication_window_s),
            is_name_only,
        )

    async def _validate(self, wanted: EngineSettings, *, is_name_only: bool) -> None:
        if not await self._database.check_schema(QUEUES):
            raise QueueNotFound(wanted.name)
        existing = await self._settings_of(wanted.name)
        if wanted.dead_letter_queue is not None:
            await self._settings_of(wanted.dead_letter_queue)
        differences = existing.differences(wanted)
        if differences and not is_name_only:
            raise QueueMismatch(wanted.name, differences)

    async def _settings_of(self, queue: str) -> EngineSettings:
        found = await self._call(
            "SELECT * FROM @.queue WHERE name = %b", "look at the queue", queue
        )
        if not found:
            raise QueueNotFound(queue)
        _, name, is_lifo, is_strict, max_receive_count, target, window_s = found[0]
        return EngineSettings(
            name=name,
            is_lifo=is_lifo,
            is_strict=is_strict,
            max_receive_count=max_receive_count,
            dead_letter_queue=target,
            deduplication_window_s=window_s,
        )

    async def _stats(self, queue: str | None) -> list[QueueStats]:
        found = await self._call("SELECT * FROM @.stats(%b)", "stats", queue)
        return [
            QueueStats(
                name=name,
                visible=visible,
                in_flight=in_flight,
                delayed=delayed,
                oldest_age_s=None if oldest_s is None else max(oldest_s, 0.0),
            )
            for name, visible, in_flight, delayed, oldest_s in found
        ]

    async def _call(
        self, sql: str, operation: str, queue: str | None, *arguments: object
    ) -> list[Sequence[Any]]:
        sql = named(sql, self._database.settings.schema)
        return await self._database.call(Statement(sql, operation, queue or ""), queue, *arguments)
