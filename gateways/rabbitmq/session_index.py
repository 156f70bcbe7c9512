"""What a queue with sessions has beside it, and which of its sessions may have messages.

| queue                     | what is in it                                                      |
|---------------------------|--------------------------------------------------------------------|
| `orders`                  | what was sent, until it is sorted                                  |
| `orders.session:<group>`  | the messages of one group, in their order                          |
| `orders.sessions`         | the names of those: AMQP cannot list them                          |
| `orders.ready`            | a note for each session that may have messages and is not held     |
| `orders.attempts:<group>` | which deliveries of its messages count as no attempt: one note     |
| `orders.lock:<group>`     | nothing: it exists while a connection holds the session            |
| `orders.sorter`           | nothing: it exists while a connection sorts                        |

A note is a hint: one too many is thrown away by a client that finds the session empty or held, one
too few is written again by a client that releases a session, or by the sorter when it looks around.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, cast

import attrs

from pump.errors import QueueMismatch, QueueNotFound
from pump.message import new_id
from pump.observability import vocabulary
from pump.observability.log import get_logger
from pump.subscription import QueueSpec

from .connection import RabbitMQLink, close_channel
from .errors import Where, translated
from .names import beside, session_attempts, session_queue, sessions_name
from .publisher import Addressed
from .topology import (
    LeaderProbe,
    RegistryEntry,
    Topology,
    arguments_of,
    attempts_arguments,
    first_error,
)
from .wire import Parcel

if TYPE_CHECKING:
    from .amqp import Channel, Connection


AUXILIARY = "auxiliary"
"""What `orders.sessions` and `orders.ready` are in the registry of all queues."""
NEW = "new"
"""What a session's queue is that a kill of the broker might not spare, unless it is there as no
such thing as well: nothing was acked yet that is only in it."""

_log = get_logger("gateways.rabbitmq")


class SessionIndex:
    """The queues beside one queue with sessions."""

    def __init__(self, link: RabbitMQLink, topology: Topology, spec: QueueSpec) -> None:
        self.queue = spec.name
        self.ready = beside(spec.name, "ready")
        self.sorter_lock = beside(spec.name, "sorter")
        self.registry = topology.sessions_of(spec.name)
        self._link = link
        self._topology = topology
        self._spec = spec

    async def prepare(self) -> None:
        """Make what is shared by all sessions, if it is missing; `QueueNotFound` when the queue
        itself is.
        """
        await self._topology.count(self.queue)
        await self._declare(self.ready, QueueSpec(name=self.ready))
        await self._topology.secure()
        await self.registry.entries()
        for name in (self.ready, sessions_name(self.queue)):
            await self._topology.registry.add(RegistryEntry(name, of=self.queue, role=AUXILIARY))

    async def unsorted_count(self) -> int:
        """How many messages wait to be sorted."""
        return await self._topology.count(self.queue)

    async def count(self, group: str) -> int | None:
        """How many messages wait in a session, None when it has no queue."""
        try:
            return await self._topology.count(session_queue(self.queue, group))
        except QueueNotFound:
            return None

    async def make(self, group: str) -> RegistryEntry:
        """A queue for this group. Its name is written down first: one that is nowhere written
        would never be removed. It is written as new until `secure`.
        """
        entry = RegistryEntry(session_queue(self.queue, group), of=group, role=NEW)
        await self.registry.write(entry)
        arguments = arguments_of(self._spec, server=self._link.server)
        try:
            async with self._link.brief_channel(self._where(entry.queue)) as channel:
                await channel.queue_declare(entry.queue, durable=True, arguments=arguments)
        except QueueMismatch:
            # Made for a subscription with another limit: its messages must get somewhere.
            await self._topology.count(entry.queue)
        return entry

    async def make_safely(self, group: str) -> None:
        """The same for the holder of a session, whose queue a sorter may know from before it was
        removed, and take for written down.
        """
        await self.make(group)
        await self._topology.secure()

    async def make_again(self, group: str) -> None:
        """The same for a queue that was removed by an operator."""
        await self.forget([RegistryEntry(session_queue(self.queue, group), of=group)])
        await self.make(group)

    def leader_probe(self) -> LeaderProbe:
        """What `is_surely_empty` asks by; to be entered, and left."""
        return self._topology.leader_probe()

    async def is_surely_empty(self, entry: RegistryEntry, probe: LeaderProbe) -> bool:
        """Whether a session's queue says itself that it has no message."""
        from . import amqp

        try:
            answer = await probe.get(entry.queue)
        except QueueNotFound:
            return True
        return answer is not None and amqp.is_empty(answer)

    async def remove(self, entry: RegistryEntry, lock: ConsumerSessionLock) -> None:
        """Remove the queue of a group, and whatever is in it, by the connection that has its lock:
        on another one it could come after another sorter has sorted into the queue.
        """
        with translated(self._where(entry.queue)):
            await lock.channel.queue_delete(entry.queue)
            await lock.channel.queue_delete(session_attempts(self.queue, entry.of))

    async def uncounted(self, group: str) -> dict[int, int]:
        """How many deliveries that the broker has counted are no attempts, by the order of the
        session's messages. For the holder of the session.
        """
        name = session_attempts(self.queue, group)
        try:
            async with self._link.brief_channel(self._where(name)) as channel:
                # What it gives goes back with the channel.
                found = await channel.basic_get(name)
        except QueueNotFound:
            return {}
        return _read_uncounted(bytes(found.body))

    async def keep_uncounted(self, group: str, uncounted: Mapping[int, int]) -> None:
        """Have the next holder of the session know of these, and of no others."""
        name = session_attempts(self.queue, group)
        async with self._link.brief_channel(self._where(name)) as channel:
            await channel.queue_declare(name, durable=True, arguments=attempts_arguments())
        body = json.dumps({str(order): count for order, count in uncounted.items()}).encode()
        parcel = Parcel(body=body, properties={"message_id": new_id()})
        publisher = self._topology.publisher(sessions_name(self.queue))
        if (error := first_error(await publisher.publish(name, [parcel]))) is not None:
            raise error

    async def send(self, addressed: list[Addressed]) -> None:
        """Put messages into sessions, in this order; raises unless all were taken."""
        publisher = self._topology.publisher(sessions_name(self.queue))
        if (error := first_error(await publisher.publish_each(addressed))) is not None:
            raise error

    async def secure(self, groups: Iterable[str]) -> None:
        """Return when the queues of these would survive a kill of the broker, and every sorter can
        know it: before anything that is only there counts as sorted.
        """
        await self._topology.secure()
        names = {session_queue(self.queue, group): group for group in groups}
        await self.registry.write(*(RegistryEntry(name, of=of) for name, of in names.items()))

    async def mend(self, new: Iterable[RegistryEntry]) -> None:
        """Replace what the broker was killed over: queues that will never have a leader. Nothing
        that was acked is in them, and notes are only hints.
        """
        groups = {each.queue: each.of for each in new}
        for name in await self._topology.without_leader([self.ready, *groups]):
            _log.warning(vocabulary.QUEUE_REPLACED, queue=name)
            await self._topology.remove(name)
            if name == self.ready:
                await self._declare(self.ready, QueueSpec(name=self.ready))
                await self._topology.secure()
            else:
                await self.make(groups[name])

    async def forget(self, gone: Iterable[RegistryEntry]) -> None:
        """Forget queues of sessions that are no more."""
        names = {each.queue: each.of for each in gone}
        roles = ("", NEW)
        await self.registry.remove(
            [RegistryEntry(name, of, role) for name, of in names.items() for role in roles]
        )

    async def announce(self, groups: Iterable[str], *, delay_s: float = 0.0) -> None:
        """Leave a note that these may have messages, now or after a delay."""
        notes = [
            Parcel(body=json.dumps(group).encode(), properties={"message_id": new_id()})
            for group in groups
        ]
        results = await self._topology.publish(self.ready, notes, delay_s=delay_s)
        if (error := first_error(results)) is not None:
            raise error

    async def _declare(self, name: str, spec: QueueSpec) -> None:
        arguments = arguments_of(spec, server=self._link.server)
        async with self._link.brief_channel(self._where(name)) as channel:
            await channel.queue_declare(name, durable=True, arguments=arguments)

    def _where(self, queue: str) -> Where:
        return Where(self._link.address, "declaring", queue)


def group_noted(body: bytes) -> str | None:
    """The group that a note names, None for what is no note."""
    try:
        group = json.loads(body)
    except ValueError:
        return None
    return group if isinstance(group, str) else None


def _read_uncounted(body: bytes) -> dict[int, int]:
    """What `keep_uncounted` wrote; nothing where it is something else."""
    try:
        found = json.loads(body)
        return {int(order): int(count) for order, count in found.items()}
    except (AttributeError, TypeError, ValueError):
        return {}


# Locks: a queue that is exclusive exists for one connection, and ends with it.
#
# No client has to find out that an owner is dead: the broker does, by the connection's heartbeat.


@attrs.frozen(eq=False)
class ConsumerSessionLock:
    """A lock that is held, and the channel on which its holder receives."""

    name: str
    channel: Channel

    @property
    def is_gone(self) -> bool:
        """Whether the broker has taken back what was received, with or without the lock."""
        return bool(self.channel.is_closed or self.channel.connection.is_closed)


class ConsumerSessionLocks:
    """The locks that one gateway holds through one connection."""

    def __init__(self, link: RabbitMQLink) -> None:
        self._link = link
        self._held: set[str] = set()

    async def acquire(self, name: str) -> ConsumerSessionLock | None:
        """The lock, None while it is another's. Must not be cancelled: the broker would have
        given a lock without an owner.
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
                    return ConsumerSessionLock(name, channel)
        except BaseException:
            self._held.discard(name)
            raise
        self._held.discard(name)
        return None

    async def release(self, lock: ConsumerSessionLock) -> None:
        """Hand back what was received and not settled, then unlock. Without a word where the
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
