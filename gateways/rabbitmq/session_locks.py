"""Locks: a queue that is exclusive exists for one connection, and ends with it.

Nobody has to find out that an owner is dead: the broker does, by the connection's heartbeat.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import attrs

from .connection import Link, close_channel
from .errors import Where, translated

if TYPE_CHECKING:
    from .amqp import Channel, Connection


@attrs.frozen(eq=False)
class SessionLock:
    """A lock that is held, and the channel on which its holder receives."""

    name: str
    channel: Channel

    @property
    def is_gone(self) -> bool:
        """Whether the broker has taken back what was received, with or without the lock."""
        return bool(self.channel.is_closed or self.channel.connection.is_closed)


class SessionLocks:
    """The locks that one gateway holds through one connection."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._held: set[str] = set()

    async def acquire(self, name: str) -> SessionLock | None:
        """The lock, None while it is another's. Must not be cancelled: the broker would have
        given a lock to nobody.
        """
        from . import amqp

        # To one connection the broker gives the same lock twice.
        if name in self._held:
            return None
        self._held.add(name)
        try:
            channel = await self._link.channel()
            with translated(Where(self._link.address, "locking", name)):
                if not await amqp.is_locked(channel, name):
                    return SessionLock(name, channel)
        except BaseException:
            self._held.discard(name)
            raise
        self._held.discard(name)
        return None

    async def release(self, lock: SessionLock) -> None:
        """Hand back what was received and not settled, then let go. Without a word where the
        connection has gone: so has the lock.
        """
        from . import amqp

        connection = lock.channel.connection
        try:
            await close_channel(lock.channel)
            if connection.is_closed:
                return
            with translated(Where(self._link.address, "unlocking", lock.name)):
                channel = await amqp.open_channel(cast("Connection", connection), confirms=False)
                try:
                    await channel.queue_delete(lock.name)
                finally:
                    await close_channel(channel)
        finally:
            self._held.discard(lock.name)
