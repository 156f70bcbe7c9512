"""The caretaker of queues. Each question has a channel of its own: a "no" closes it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from pump.errors import QueueMismatch, QueueNotFound, UnsupportedOperation
from pump.findings import Finding, error, warning
from pump.message import Message
from pump.ports import QueueStats
from pump.subscription import MakeChannels, QueueSpec, Subscription

from .connection import RabbitMQLink
from .errors import Where
from .names import HEARTBEATS, checked_name, legal_name, sessions_name
from .registry import RegistryEntry
from .topology import DELAY, DELIVERY_LIMIT, Topology, arguments_of


def lease_findings(subscription: Subscription, *, heartbeat_s: float) -> list[Finding]:
    """Whether a process that stands still keeps messages for longer than its leases say. Pure."""
    silence_s, lease_s = HEARTBEATS * heartbeat_s, subscription.lease.total_seconds()
    if lease_s >= silence_s:
        return []
    return [
        warning(
            f"subscription {subscription.name}",
            f"lease is {lease_s:g} s, but what a process that stands still holds, sessions too, "
            f"comes free only after {HEARTBEATS} heartbeats, {silence_s:g} s",
            f"add heartbeat={max(1, int(lease_s / HEARTBEATS))} to the URL, or use a lease of "
            f"{silence_s:g} s",
        )
    ]


class RabbitMQAdmin:
    """Looks after queues."""

    def __init__(
        self,
        link: RabbitMQLink,
        topology: Topology,
        *,
        held_of: Callable[[str], int],
        drop_held_of: Callable[[str], Any],
    ) -> None:
        self._link = link
        self._topology = topology
        self._held_of = held_of
        self._drop_held_of = drop_held_of

    async def ensure(self, spec: QueueSpec, make: MakeChannels) -> None:
        """RabbitMQ compares every argument of a queue that is declared again."""
        checked_name(spec.name)
        arguments_of(spec, server="")
        if make is MakeChannels.ASSUME:
            return
        await self._link.connection()
        if make is MakeChannels.VALIDATE:
            # A declaration would make it.
            await self._topology.count(spec.name)
            if spec.dead_letter_queue is not None:
                await self._topology.count(spec.dead_letter_queue)
        elif spec.dead_letter_queue is not None:
            await self._make_missing(spec.dead_letter_queue)
        await self._declare(spec)
        if make is MakeChannels.CREATE:
            # At every start: another process may have made it a moment ago.
            await self._topology.secure()
        await self._topology.registry.add(RegistryEntry(spec.name))

    async def missing(self, subscription: Subscription) -> list[Finding]:
        """Which of the subscription's queues are not there and are not going to be made."""
        found: list[Finding] = []
        if subscription.make_channels is MakeChannels.CREATE:
            return found
        for spec in subscription.queue_specs():
            try:
                await self._topology.count(spec.name)
            except QueueNotFound:
                detail = f"queue {spec.name!r} does not exist, and make_channels is "
                found.append(
                    error(
                        f"subscription {subscription.name}",
                        f"{detail}{subscription.make_channels.value!r}",
                        "create the queue, or set make_channels='create'",
                    )
                )
        return found

    async def queues(self) -> Sequence[QueueStats]:
        """Those that a gateway of ours has made, and those that this one was asked for."""
        entries = await self._topology.registry.entries()
        counts: dict[RegistryEntry, int] = {}
        gone: set[RegistryEntry] = set()
        for entry in sorted(entries):
            try:
                counts[entry] = await self._topology.count(entry.queue)
            except QueueNotFound:
                gone.add(entry)
        if gone:
            await self._topology.registry.remove(gone)
        delayed: Counter[str] = Counter()
        visible: Counter[str] = Counter()
        for entry, count in counts.items():
            if entry.role == DELAY:
                delayed[entry.of] += count
            elif entry.queue == sessions_name(entry.of):
                visible[entry.of] += await self._in_sessions(entry.of)
        return [
            self._stats(entry.queue, count + visible[entry.queue], delayed[entry.queue])
            for entry, count in counts.items()
            if not entry.of
        ]

    async def stats(self, queue: str) -> QueueStats:
        """What is in flight is what this gateway holds: RabbitMQ does not say what others do."""
        visible = await self._topology.count(legal_name(queue))
        if await self._topology.has_sessions(queue):
            visible += await self._in_sessions(queue)
        delayed = 0
        for stay in await self._topology.stays_of(queue, is_estimate=True):
            try:
                delayed += await self._topology.count(stay)
            except QueueNotFound:
                continue
        return self._stats(queue, visible, delayed)

    async def peek(self, queue: str, *, max_count: int = 10) -> Sequence[Message]:
        raise UnsupportedOperation(
            "amqp",
            "peeking",
            "RabbitMQ shows a message only by delivering it, which counts as an attempt",
        )

    async def purge(self, queue: str) -> int:
        """What is in flight at other processes stays theirs."""
        count = await self._purge(legal_name(queue))
        besides = await self._topology.stays_of(queue, is_estimate=False)
        if await self._topology.has_sessions(queue):
            besides += await self._session_queues(queue)
        for beside in besides:
            try:
                count += await self._purge(beside)
            except QueueNotFound:
                continue
        return count + int(await self._drop_held_of(queue))

    async def _in_sessions(self, queue: str) -> int:
        count = 0
        for name in await self._session_queues(queue):
            try:
                count += await self._topology.count(name)
            except QueueNotFound:
                continue
        return count

    async def _session_queues(self, queue: str) -> list[str]:
        entries = await self._topology.sessions_of(queue).entries()
        return sorted(entry.queue for entry in entries)

    def _stats(self, queue: str, visible: int, delayed: int) -> QueueStats:
        return QueueStats(
            name=queue, visible=visible, in_flight=self._held_of(queue), delayed=delayed
        )

    async def _purge(self, queue: str) -> int:
        async with self._link.brief_channel(self._where("purging", queue)) as channel:
            return (await channel.queue_purge(queue)).message_count or 0

    async def _make_missing(self, queue: str) -> None:
        try:
            await self._topology.count(queue)
        except QueueNotFound:
            await self._declare(QueueSpec(name=queue))
            await self._topology.registry.add(RegistryEntry(queue))

    async def _declare(self, spec: QueueSpec) -> None:
        arguments = arguments_of(spec, server=self._link.server)
        try:
            await self._declare_with(spec.name, arguments)
        except QueueMismatch as error:
            if arguments.get(DELIVERY_LIMIT) != -1 or DELIVERY_LIMIT not in error.detail:
                raise
            # Made before the broker was RabbitMQ 4: as good as it can be.
            del arguments[DELIVERY_LIMIT]
            await self._declare_with(spec.name, arguments)

    async def _declare_with(self, queue: str, arguments: dict[str, Any]) -> None:
        async with self._link.brief_channel(self._where("declaring", queue)) as channel:
            await channel.queue_declare(queue, durable=True, arguments=arguments)

    def _where(self, operation: str, queue: str) -> Where:
        return Where(self._link.address, operation, queue)
