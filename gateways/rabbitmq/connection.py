"""The connection of one gateway: made when needed, and made again after it was lost.

| the link is | when                                | and then                                     |
|-------------|-------------------------------------|----------------------------------------------|
| idle        | opened, lost, or never used         | the next call connects                       |
| connecting  | somebody needs it                   | everybody who needs it waits for the one try |
| connected   | the broker answered                 | calls open their channels on it              |
| closed      | the gateway was closed              | every call fails                             |

Channels die with their connection, and with each error of the broker; whoever holds one asks
for another. After a failure the next try waits a little, longer each time, up to a second. Once
a stranger's header has ended a connection, those after it read more carefully (`legible`).
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib import metadata
from typing import TYPE_CHECKING, Any

from pump.backoff import RECONNECT
from pump.clock import Clock
from pump.errors import ConfigurationError, ConnectionFailed, PoolExhausted, Throttled
from pump.tasks import in_thread

from .errors import Where, translated
from .settings import RabbitMQSettings

if TYPE_CHECKING:
    from .amqp import Channel, Connection


MAX_PAUSE_S = 1.0
CALM_S = 1.5
"""How long after a broker is back it may still hold messages for connections that are no more."""
_CLOSING_S = 5.0


class Link:
    """The gateway's connection. Safe for many tasks at once."""

    def __init__(self, settings: RabbitMQSettings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._connection: Connection | None = None
        self._connecting: asyncio.Task[Connection] | None = None
        self._is_closed = True
        self._failure_count = 0
        self._is_careful = False
        """Whether a message's header has ended a connection."""
        self._server = ""
        self._calm_at_s = 0.0

    @property
    def address(self) -> str:
        """Where the broker is, without a secret."""
        return self._settings.address

    @property
    def is_connected(self) -> bool:
        """Whether there is a connection, as far as is known."""
        return self._connection is not None and not self._connection.is_closed

    @property
    def server(self) -> str:
        """The broker's version, once connected."""
        return self._server

    async def open(self) -> None:
        """Connect; raises what keeps it from doing so. Idempotent."""
        await in_thread(_load_sdk)
        self.allow()
        await self.connection()

    def allow(self) -> None:
        """Let the first call connect."""
        self._is_closed = False

    async def aclose(self) -> None:
        """Close the connection, and with it every channel. Idempotent."""
        self._is_closed = True
        if self._connecting is not None:
            self._connecting.cancel()
            await asyncio.wait([self._connecting])
        connection, self._connection = self._connection, None
        if connection is not None:
            await _close(connection, self._clock)

    async def connection(self) -> Connection:
        """The connection, made now if there is none."""
        if self._is_closed:
            raise ConnectionFailed(self.address, "the gateway is closed")
        if self._connection is not None and not self._connection.is_closed:
            return self._connection
        if self._connecting is None or self._connecting.done():
            self._connecting = asyncio.create_task(self._connect(), name="rabbitmq connect")
            self._connecting.add_done_callback(look_at)
        with translated(Where(self.address, "connecting")):
            return await asyncio.shield(self._connecting)

    async def calm(self) -> None:
        """Return when a broker that was away has had time to take back what it had handed out."""
        await self._clock.sleep(max(0.0, self._calm_at_s - self._clock.now_s()))

    async def channel(self, *, confirms: bool = False) -> Channel:
        """A channel of the caller's own, which he closes. `Throttled` when the broker is connected
        and does not answer.
        """
        from . import amqp

        connection = await self.connection()
        if len(connection.channels) >= (connection.connection_tune.channel_max or 65_535) - 1:
            raise PoolExhausted(self.address, len(connection.channels))
        opening = asyncio.ensure_future(amqp.open_channel(connection, confirms=confirms))
        with translated(Where(self.address, "opening a channel")):
            try:
                async with self._clock.timeout(self._settings.connect_timeout_s):
                    # Cancelled in the middle, the SDK would close the channel by an error.
                    return await asyncio.shield(opening)
            except (asyncio.CancelledError, TimeoutError) as error:
                opening.add_done_callback(_close_opened)
                if isinstance(error, asyncio.CancelledError):
                    raise
                # Connected, and silent: a broker that is short of memory or disk is.
                raise Throttled(self.address) from None

    @asynccontextmanager
    async def brief_channel(self, where: Where) -> AsyncIterator[Channel]:
        """A channel for one question, whose answer may be an error that closes it."""
        channel = await self.channel()
        try:
            with translated(where):
                yield channel
        finally:
            await close_channel(channel)

    async def _connect(self) -> Connection:
        from . import amqp

        was_lost = self._connection is not None or self._failure_count > 0
        if self._failure_count:
            pause_s = RECONNECT.delay_s(self._failure_count, self._clock.chance())
            await self._clock.sleep(min(pause_s, MAX_PAUSE_S))
        self._failure_count += 1
        if self._connection is not None and amqp.has_met_illegible(self._connection):
            # It comes again, until somebody reads it.
            self._is_careful = True
        async with self._clock.timeout(self._settings.connect_timeout_s):
            connection = await amqp.connect(self._settings, is_careful=self._is_careful)
        version = amqp.server_version(connection)
        try:
            check_server(version)
        except BaseException:
            await _close(connection, self._clock)
            raise
        self._failure_count = 0
        self._server = version
        if was_lost:
            self._calm_at_s = self._clock.now_s() + CALM_S
        self._connection = connection
        return connection


def _load_sdk() -> None:
    """Read the SDK's files, which is nothing for the event loop."""
    check_sdk()
    from . import amqp  # noqa: F401


async def close_channel(channel: Channel) -> None:
    """Close a channel, however it is; what it held goes back to its queues. A broker that does not
    answer is not waited for: the channel goes with its connection.
    """
    if channel.is_closed or channel.connection.is_closed:
        return
    closing = asyncio.ensure_future(channel.close(timeout=_CLOSING_S))
    closing.add_done_callback(look_at)
    try:
        await asyncio.shield(closing)
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
    except Exception:  # broad: a channel that cannot be closed has died by itself
        return


async def _close(connection: Connection, clock: Clock) -> None:
    closed = ConnectionError("closed by the gateway")
    try:
        async with clock.timeout(_CLOSING_S):
            await connection.close(closed)
    except Exception:  # broad: whatever is wrong with it, it is to go
        return


def look_at(work: asyncio.Future[Any]) -> None:
    """Have seen how it ended: asyncio complains of an error that its caller no longer waits for,
    such as that of a connection which was lost after the caller was cancelled.
    """
    if not work.cancelled():
        work.exception()


def _close_opened(opening: asyncio.Future[Channel]) -> None:
    if not opening.cancelled() and opening.exception() is None:
        closing = asyncio.ensure_future(close_channel(opening.result()))
        _CLOSINGS.add(closing)
        closing.add_done_callback(_CLOSINGS.discard)


_CLOSINGS: set[asyncio.Future[None]] = set()
"""Held until they are done: the loop itself keeps no task alive."""


# The oldest SDK and server this works with, checked before anything is sent (R77).

MINIMUM = {"aio-pika": "10", "aiormq": "7"}
MINIMUM_SERVER = "3.10"
"""The first with a time to live, and with dead-lettering that loses nothing, on quorum queues."""
INSTALL = "pip install 'pumphouse[rabbitmq]'"


def check_sdk() -> None:
    """Raise `ConfigurationError`, naming the cure, when the SDK is missing or too old."""
    for package in MINIMUM:
        check_version(package, installed(package))


def installed(package: str) -> str | None:
    """The version that is installed, None when it is not; reads files."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def check_version(package: str, found: str | None) -> None:
    """Raise `ConfigurationError` when this version is missing or too old."""
    minimum = MINIMUM[package]
    if found is None:
        raise ConfigurationError(package, "not installed", f"run {INSTALL}")
    if numbers(found) < numbers(minimum):
        remedy = f"needs {package} >= {minimum}; run {INSTALL.replace('install', 'install -U')}"
        raise ConfigurationError(package, found, remedy)


def check_server(version: str) -> None:
    """Raise `ConfigurationError` when the broker is too old. One that does not say is tried."""
    if version and numbers(version) < numbers(MINIMUM_SERVER):
        raise ConfigurationError(
            "RabbitMQ", version, f"needs RabbitMQ >= {MINIMUM_SERVER}; upgrade the broker"
        )


def numbers(version: str) -> tuple[int, ...]:
    """A version as numbers that compare."""
    return tuple(int(number) for number in re.findall(r"\d+", version)[:3])
