"""The local gateway: durable queues in a folder, shared by the processes of one machine."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from urllib.parse import parse_qs, unquote

import attrs

from pump.capabilities import Capabilities
from pump.clock import SYSTEM_CLOCK, Clock
from pump.errors import ConfigurationError, ConnectionFailed, GatewayError
from pump.message import Delivery, Message, new_id
from pump.outcome import Action
from pump.ports import AdminPort, ConsumerPort, Gateway, ProducerPort, QueueStats, SessionPort
from pump.stores.file_lock import FileLock
from pump.subscription import MakeChannels, QueueSpec, Subscription
from pump.tasks import in_thread, to_the_end

from .._engine.engine import QueueEngine
from .._engine.ports import (
    ENGINE,
    Broker,
    EngineAdmin,
    EngineConsumer,
    EngineProducer,
    EngineSessions,
    Grant,
    SessionBroker,
    accept,
)
from .._sqlite.database import Database, Statement, translate
from .client import ClientSessions, LocalClient
from .dispatcher import RequestDispatcher
from .journal import SCHEMA, Recovered, SqliteJournal, recover
from .server import DataFolder, LocalServer

DEFAULT_PATH = ".pumphouse/queues"

CAPABILITIES = attrs.evolve(
    ENGINE,
    gateway="local",
    has_sessions=True,
    has_session_choice=True,
    is_durable=True,
    is_shared=True,
    # An ack waits for a disk write anyway, so waiting for others to share it costs nothing.
    settle_linger_s=0.002,
    max_pollers=2,
)

# How long operations wait for a host before they fail. Taking over a million messages took
# 21 s on two busy cores.
_PATIENCE_S = 60.0
_MAX_SIZE_DIGITS = 18
_LIMITS = ("max_bytes", "reserve_bytes")
_FIRST_RETRY_S = 0.002
_LAST_RETRY_S = 0.1


class LocalGateway:
    """An embedded broker in a folder.

    The first process to open it hosts the engine, the others use it through a socket; when the
    host goes, one of the others takes over, and operations in flight go on there.
    """

    def __init__(
        self,
        path: str | Path = DEFAULT_PATH,
        clock: Clock = SYSTEM_CLOCK,
        *,
        max_bytes: int | None = None,
        reserve_bytes: int | None = None,
    ) -> None:
        if max_bytes is not None and max_bytes < 1:
            raise ConfigurationError("LocalGateway.max_bytes", max_bytes, "use 1 or more")
        if reserve_bytes is not None and reserve_bytes < 0:
            raise ConfigurationError(
                "LocalGateway.reserve_bytes", reserve_bytes, "use 0 or more, or leave it out"
            )
        self._folder = DataFolder(Path(path))
        self._clock = clock
        self._limits = Limits(max_bytes=max_bytes, reserve_bytes=reserve_bytes)
        self._switch = Switch(str(path))
        self._sessions = SwitchedSessions(self._switch)
        self._opening = asyncio.Lock()
        self._owner = ""
        self._owner_lock: FileLock | None = None
        self._host: Host | None = None
        self._client: LocalClient | None = None
        self._seeking: asyncio.Task[None] | None = None
        self._is_closing = False

    @property
    def capabilities(self) -> Capabilities:
        return CAPABILITIES

    @property
    def is_host(self) -> bool:
        """Whether the engine lives in this process at the moment."""
        return self._host is not None

    async def open(self) -> None:
        """Host the engine, or connect to the process that does.

        `StorageFailed` when the folder or the database cannot be used; the file stays as it was.
        """
        async with self._opening:
            if self._owner_lock is not None:
                return
            self._owner = new_id()
            with translate(self._folder.path):
                lock = self._folder.owner_lock(self._owner)
                await _acquire(lock, self._folder.enrol)
            self._owner_lock = lock
            try:
                await self._find_engine()
            except BaseException:
                await self._let_go()
                raise

    async def aclose(self) -> None:
        """Write what is pending and give back what this process held."""
        async with self._opening:
            if self._owner_lock is None:
                return
            self._is_closing = True
            if self._seeking is not None:
                self._seeking.cancel()
                await asyncio.wait([self._seeking])
            host, client = self._host, self._client
            try:
                if host is not None:
                    await host.aclose()
                if client is not None:
                    await client.aclose()
            finally:
                await self._let_go()

    def consumer(self, subscription: Subscription) -> ConsumerPort:
        return EngineConsumer(self._switch, subscription.queue, subscription.lease)

    async def accept_session(
        self, subscription: Subscription, session: str | None, *, wait_s: float
    ) -> SessionPort | None:
        """Of messages that have a group; others are in no session."""
        return await accept(self._switch, self._sessions, subscription, session, wait_s=wait_s)

    def producer(self, queue: str) -> ProducerPort:
        return EngineProducer(self._switch, queue)

    def admin(self) -> AdminPort:
        return EngineAdmin(self._switch)

    async def _let_go(self) -> None:
        self._switch.turn_to(None)
        self._host = self._client = self._seeking = None
        self._is_closing = False
        lock, self._owner_lock = self._owner_lock, None
        if lock is not None:
            await in_thread(self._folder.dismiss, lock)

    async def _find_engine(self) -> None:
        deadline_s = SYSTEM_CLOCK.now_s() + _PATIENCE_S
        wait_s = _FIRST_RETRY_S
        while not (await self._try_to_host() or await self._try_to_connect()):
            if SYSTEM_CLOCK.now_s() >= deadline_s:
                raise ConnectionFailed(
                    str(self._folder.path),
                    "another process holds engine.lock but does not answer; stop that process",
                )
            await SYSTEM_CLOCK.sleep(wait_s)
            wait_s = min(wait_s * 1.5, _LAST_RETRY_S)

    async def _try_to_host(self) -> bool:
        lock = FileLock(self._folder.engine_lock)
        with translate(self._folder.engine_lock):
            if not await _acquire(lock, FileLock.try_acquire):
                return False
        with translate(self._folder.path):
            self._host = await Host.start(
                self._folder, lock, self._owner, self._clock, self._limits
            )
        self._switch.turn_to(self._host.engine, owner=self._owner)
        if self._client is not None:
            self._client.hand_over(self._host.dispatcher)
        return True

    async def _try_to_connect(self) -> bool:
        with translate(self._folder.engine_lock):
            address = await in_thread(self._folder.address)
        if address is None:
            return False
        if self._client is None:
            self._client = LocalClient(self._owner, self._clock, self._on_lost)
        if not await self._client.connect(address):
            return False
        self._switch.turn_to(self._client)
        return True

    def _on_lost(self) -> None:
        if not self._is_closing:
            self._seeking = asyncio.create_task(self._seek(), name="pumphouse-seek")

    async def _seek(self) -> None:
        """Find the engine again; until then operations gather in the client."""
        while True:
            try:
                await self._find_engine()
                return
            except GatewayError as error:
                if self._client is not None:
                    self._client.fail(error)
                await SYSTEM_CLOCK.sleep(1.0)


async def _acquire(lock: FileLock, acquire: Callable[[FileLock], bool]) -> bool:
    """Acquire a lock in a thread; cancelled, let go of it again."""
    acquiring = asyncio.ensure_future(in_thread(acquire, lock))
    try:
        return await asyncio.shield(acquiring)
    except asyncio.CancelledError:
        await asyncio.wait([acquiring])
        lock.release()
        raise


def _is_size(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= _MAX_SIZE_DIGITS


def from_url(url: str, clock: Clock | None = None) -> Gateway:
    """`local://relative/folder`, `local:///absolute/folder`, or `local://` for the default.

    `?max_bytes=…` limits the size of the database file; `reserve_bytes=…` is what sends leave free
    for receives and acks.
    """
    scheme, separator, rest = url.partition("://")
    path, _, query = rest.partition("?")
    options = parse_qs(query, keep_blank_values=True)
    limits = {name: options.pop(name) for name in _LIMITS if name in options}
    sizes = [text for texts in limits.values() for text in texts]
    if scheme != "local" or not separator or options or not all(map(_is_size, sizes)):
        raise ConfigurationError(
            "url",
            url,
            "use local://folder, local:///absolute/folder, at most with ?max_bytes=n and "
            "reserve_bytes=n",
        )
    return LocalGateway(
        unquote(path) or DEFAULT_PATH,
        SYSTEM_CLOCK if clock is None else clock,
        **{name: int(texts[0]) for name, texts in limits.items()},
    )


# The switch: one broker to the ports, whichever process hosts the engine at the moment.


class Switch:
    """Forwards to the engine in this process, or to the client of another's."""

    def __init__(self, target: str) -> None:
        self._target = target
        self._owner = ""
        self._current: QueueEngine | LocalClient | None = None

    def turn_to(self, current: QueueEngine | LocalClient | None, *, owner: str = "") -> None:
        """Forward to this one from now on; `owner` holds what an engine leases."""
        self._current = current
        self._owner = owner

    @property
    def current(self) -> Broker:
        """Where operations go."""
        if self._current is None:
            raise ConnectionFailed(self._target, "the gateway is not open; await open() first")
        return self._current

    async def send(
        self, queue: str, messages: Sequence[Message], *, delay_s: float = 0.0
    ) -> list[str]:
        return await self.current.send(queue, messages, delay_s=delay_s)

    async def receive(
        self, queue: str, *, max_count: int, wait_s: float, lease_s: float
    ) -> list[Delivery]:
        if isinstance(self._current, QueueEngine):
            return await self._current.receive(
                queue, max_count=max_count, wait_s=wait_s, lease_s=lease_s, owner=self._owner
            )
        return await self.current.receive(
            queue, max_count=max_count, wait_s=wait_s, lease_s=lease_s
        )

    async def settle(
        self, queue: str, receipts: Sequence[str], actions: Sequence[Action]
    ) -> list[int]:
        return await self.current.settle(queue, receipts, actions)

    async def extend(self, queue: str, receipts: Sequence[str], *, lease_s: float) -> list[int]:
        return await self.current.extend(queue, receipts, lease_s=lease_s)

    async def ensure(self, spec: QueueSpec, make: MakeChannels) -> None:
        await self.current.ensure(spec, make)

    async def queues(self) -> list[QueueStats]:
        return await self.current.queues()

    async def peek(self, queue: str, *, max_count: int) -> list[Message]:
        return await self.current.peek(queue, max_count=max_count)

    async def purge(self, queue: str) -> int:
        return await self.current.purge(queue)

    @property
    def current_sessions(self) -> SessionBroker:
        """Where operations on sessions go."""
        if isinstance(self._current, QueueEngine):
            return EngineSessions(self._current, self._owner)
        if isinstance(self._current, LocalClient):
            return ClientSessions(self._current)
        raise ConnectionFailed(self._target, "the gateway is not open; await open() first")


class SwitchedSessions:
    """Sessions on whichever engine the switch is turned to: they outlive their host."""

    def __init__(self, switch: Switch) -> None:
        self._switch = switch

    async def accept(
        self, queue: str, session: str | None, *, wait_s: float, lease_s: float
    ) -> Grant | None:
        sessions = self._switch.current_sessions
        return await sessions.accept(queue, session, wait_s=wait_s, lease_s=lease_s)

    async def receive(
        self, queue: str, grant: Grant, *, max_count: int, wait_s: float
    ) -> list[Delivery]:
        sessions = self._switch.current_sessions
        return await sessions.receive(queue, grant, max_count=max_count, wait_s=wait_s)

    async def renew(self, queue: str, grant: Grant, *, lease_s: float) -> float:
        return await self._switch.current_sessions.renew(queue, grant, lease_s=lease_s)

    async def release(self, queue: str, grant: Grant) -> None:
        await self._switch.current_sessions.release(queue, grant)


# The host: the one process at a time in which the engine lives.


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
        self.engine = QueueEngine(clock, self._journal)
        if reserve_bytes != 0:
            self.engine.reserve = self._journal
        self.dispatcher = RequestDispatcher(self.engine, {})
        self._server: LocalServer | None = None

    @classmethod
    async def start(
        cls, folder: DataFolder, lock: FileLock, owner: str, clock: Clock, limits: Limits
    ) -> Host:
        """Recover from the file and start the server. The lock is the host's from here on."""
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
            await self._database.commit(
                [Statement(sql, [(each,) for each in recovered.void_leases])]
            )
        self._journal.start()
        self.dispatcher = RequestDispatcher(self.engine, recovered.replies)
        await self._reap_dead_clients(recovered)
        # Leases that ran out while there was no host end now, on disk too.
        await self.engine.queues()
        await self._journal.flush()
        self._server = LocalServer(self._folder, self.dispatcher, self.engine)
        address = await self._server.start()
        await asyncio.to_thread(self._lock.inscribe, str(address))

    async def _reap_dead_clients(self, recovered: Recovered) -> None:
        """T4: only the leases of dead clients end now; living ones keep theirs."""
        known = recovered.owners.union(await asyncio.to_thread(self._folder.owners))
        for owner in known - {self._owner, ""}:
            if await asyncio.to_thread(self._folder.reap_client, owner):
                await self.dispatcher.forget(owner)

    async def aclose(self) -> None:
        """Write what is pending, give back what this process held, let another process take over.

        Cancelled, it does so first: a file that is still being written must not be another's.
        """
        # A file that is still being written must not become another process's.
        await to_the_end(self._close(), "pumphouse-closing")

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
