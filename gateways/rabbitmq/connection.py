"""The connection of one gateway: made when needed, and made again after it was lost.

Channels die with their connection, and with each error of the broker; their users ask for
others. After a failure the next attempt waits a little, longer each time, up to a second. Once
another program's header has ended a connection, those after it sanitize what they read.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import TYPE_CHECKING

import attrs

from pump.backoff import RECONNECT
from pump.clock import Clock
from pump.errors import ConfigurationError, PoolExhausted, Throttled
from pump.tasks import in_thread, look_at
from pump.versions import Packages, server_version

from .._kit.connection import Reconnecting
from .errors import Where, translated
from .settings import RabbitMQSettings

if TYPE_CHECKING:
    from .amqp import Channel, Connection


MAX_PAUSE_S = 1.0
_PAUSES = attrs.evolve(RECONNECT, maximum=timedelta(seconds=MAX_PAUSE_S))
CALM_S = 1.5
"""How long after a broker is back it may still hold messages for connections that are no more."""
CLOSING_S = 5.0
"""How long something is closed in the way that the broker would like it."""


class RabbitMQLink:
    """The gateway's connection. Safe for many tasks at once."""

    def __init__(self, settings: RabbitMQSettings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._connections: Reconnecting[Connection] = Reconnecting(
            self._connect,
            is_alive=lambda connection: not connection.is_closed,
            end=self._end,
            backoff=_PAUSES,
            clock=clock,
            target=settings.address,
            is_open=False,
        )
        self._was_away = False
        """Whether the broker was lost, or could not be reached, since it was last connected to."""
        self._sanitizes_headers = False
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
        connection = self._connections.current
        return connection is not None and not connection.is_closed

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
        self._connections.reopen()

    async def aclose(self) -> None:
        """Close the connection, and with it every channel. Idempotent."""
        connection = await self._connections.aclose()
        if connection is not None:
            await _close(connection, self._clock)

    async def connection(self) -> Connection:
        """The connection, made now if there is none."""
        connection = self._connections.current
        if connection is not None and not connection.is_closed:
            return connection
        with translated(Where(self.address, "connecting")):
            return await self._connections.get()

    async def calm(self) -> None:
        """Return when a broker that was away has had time to take back what it had handed out."""
        await self._clock.sleep(max(0.0, self._calm_at_s - self._clock.now_s()))

    async def channel(self, *, confirms: bool = False) -> Channel:
        """A channel the caller has to close. `Throttled` when the broker is connected
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

    @asynccontextmanager
    async def channel_apart(self, where: Where) -> AsyncIterator[Channel]:
        """A channel on a connection of its own, for a question that a queue may leave unanswered:
        the broker ends the whole connection for it after a minute.
        """
        from . import amqp

        with translated(where):
            async with self._clock.timeout(self._settings.connect_timeout_s):
                connection = await amqp.connect(
                    self._settings, sanitizes_headers=self._sanitizes_headers
                )
            try:
                yield await amqp.open_channel(connection, confirms=False)
            finally:
                await _close(connection, self._clock)

    async def _end(self, lost: Connection) -> None:
        from . import amqp

        self._was_away = True
        if amqp.has_met_unreadable(lost):
            # The message comes again until it is read.
            self._sanitizes_headers = True

    async def _connect(self) -> Connection:
        from . import amqp

        was_away, self._was_away = self._was_away, True
        async with self._clock.timeout(self._settings.connect_timeout_s):
            connection = await amqp.connect(
                self._settings, sanitizes_headers=self._sanitizes_headers
            )
        version = amqp.server_version(connection)
        try:
            check_server(version)
        except BaseException:
            await _close(connection, self._clock)
            raise
        self._server = version
        if was_away:
            self._calm_at_s = self._clock.now_s() + CALM_S
        self._was_away = False
        return connection


def _load_sdk() -> None:
    """Read the SDK's files, which is nothing for the event loop."""
    PACKAGES.check_installed()
    from . import amqp  # noqa: F401


async def close_channel(channel: Channel) -> None:
    """Close a channel in any state; its messages in flight are requeued. A broker that does not
    answer is not waited for: the channel goes with its connection.
    """
    if channel.is_closed or channel.connection.is_closed:
        return
    closing = asyncio.ensure_future(channel.close(timeout=CLOSING_S))
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
    from . import amqp

    closing = asyncio.ensure_future(connection.close(ConnectionError("closed by the gateway")))
    closing.add_done_callback(look_at)
    try:
        async with clock.timeout(CLOSING_S):
            # Not cancelled: the SDK then goes on to wait until all that was written is sent.
            await asyncio.wait([closing])
    except TimeoutError:
        return
    finally:
        if not closing.done():
            amqp.abort(connection)
            await asyncio.wait([closing])


def _close_opened(opening: asyncio.Future[Channel]) -> None:
    if not opening.cancelled() and opening.exception() is None:
        closing = asyncio.ensure_future(close_channel(opening.result()))
        _CLOSINGS.add(closing)
        closing.add_done_callback(_CLOSINGS.discard)


_CLOSINGS: set[asyncio.Future[None]] = set()
"""Held until they are done: the loop itself keeps no task alive."""


# The SDK and the servers this works with, checked before anything is sent (R77).

PACKAGES = Packages(extra="rabbitmq", versions={"aio-pika": ">=10", "aiormq": ">=7"})
MINIMUM_SERVER = "3.10"
"""The first with a time to live, and with dead-lettering that loses nothing, on quorum queues."""


def check_server(version: str) -> None:
    """Raise `ConfigurationError` when the broker is too old. One that does not say is tried."""
    if version and server_version(version) < server_version(MINIMUM_SERVER):
        raise ConfigurationError(
            "RabbitMQ", version, f"needs RabbitMQ >= {MINIMUM_SERVER}; upgrade the broker"
        )
