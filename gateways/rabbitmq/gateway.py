"""The RabbitMQ gateway, and the administration of its queues."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from weakref import WeakSet

from pump.capabilities import Capabilities
from pump.clock import SYSTEM_CLOCK, Clock
from pump.errors import (
    InvalidReceipt,
    MessageTooLarge,
    QueueMismatch,
    QueueNotFound,
    SendFailed,
    UnsupportedOperation,
)
from pump.findings import Finding, HandlerTimes, error, warning
from pump.message import Delivery, Message
from pump.outcome import ACK, Refusal, Settlement
from pump.ports import ConsumerPort, Gateway, ProducerPort, QueueStats, SessionPort
from pump.subscription import MakeChannels, QueueSpec, Subscription

from .connection import RabbitMQLink
from .consumer import RabbitMQConsumer
from .errors import Where
from .names import (
    HEARTBEATS,
    MAX_DELAY_S,
    capabilities_with,
    checked_name,
    legal_name,
    max_lease_s,
    sessions_name,
)
from .session import RabbitMQSessions
from .session_index import SessionIndex
from .settings import RabbitMQSettings
from .settling import RabbitMQSettling, Terms
from .sorter import Sorter
from .topology import (
    DELAY,
    DELIVERY_LIMIT,
    RegistryEntry,
    Topology,
    arguments_of,
    first_error,
    has_sessions,
)
from .wire import encode


class RabbitMQGateway:
    """The queues of one virtual host.

    Over two connections, one to publish and one for the rest, and a third to sort where sessions
    are accepted; each is made when it is needed, and again when it is lost.
    """

    def __init__(
        self, settings: RabbitMQSettings | None = None, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self._settings = settings or RabbitMQSettings()
        self._clock = clock
        self._capabilities = capabilities_with(self._settings)
        self._link = RabbitMQLink(self._settings, clock)
        self._publishing = RabbitMQLink(self._settings, clock)
        self._topology = Topology(
            self._link,
            self._publishing,
            clock,
            patience_s=self._settings.confirm_timeout_s,
        )
        self._sorting = RabbitMQLink(self._settings, clock)
        self._settlings: dict[str, RabbitMQSettling] = {}
        self._sessions: dict[str, RabbitMQSessions] = {}
        self._consumers: WeakSet[RabbitMQConsumer] = WeakSet()

    def __repr__(self) -> str:
        return f"RabbitMQGateway({self._settings!r})"

    @property
    def capabilities(self) -> Capabilities:
        return self._capabilities

    async def open(self) -> None:
        """Checks the SDK and the broker's version as well."""
        await self._link.open()
        self._publishing.allow()
        self._sorting.allow()

    async def aclose(self) -> None:
        """What is in flight goes back to its queue at once."""
        try:
            await asyncio.gather(*(each.aclose() for each in self._sessions.values()))
            await asyncio.gather(*(each.aclose() for each in list(self._consumers)))
            await asyncio.gather(*(each.aclose() for each in self._settlings.values()))
            await self._topology.aclose()
        finally:
            self._sessions.clear()
            await self._sorting.aclose()
            await self._publishing.aclose()
            await self._link.aclose()

    def consumer(self, subscription: Subscription) -> ConsumerPort:
        """`UnsupportedOperation` for queues that RabbitMQ cannot offer, such as strict order."""
        for spec in subscription.queue_specs():
            arguments_of(spec, server="")
        queue = checked_name(subscription.queue)
        self._topology.registry.note(queue)
        if has_sessions(spec):
            return SessionsOnly(queue)
        return self._consumer(queue, self._terms(subscription))

    async def accept_session(
        self, subscription: Subscription, session: str | None, *, wait_s: float
    ) -> SessionPort | None:
        """For queues that are made with `options={"sessions": True}`."""
        *_, spec = subscription.queue_specs()
        if not has_sessions(spec):
            raise UnsupportedOperation(
                "amqp",
                f"sessions on queue {spec.name!r}",
                "its messages go to any consumer; make the queue with options={'sessions': True}",
            )
        if checked_name(spec.name) not in self._sessions:
            self._sessions[spec.name] = self._make_sessions(spec)
        sessions = self._sessions[spec.name]
        return await sessions.accept(session, self._terms(subscription), wait_s=wait_s)

    def producer(self, queue: str) -> ProducerPort:
        self._topology.registry.note(checked_name(queue))
        return RabbitMQProducer(self._topology, queue, max_body_bytes=self._settings.max_body_bytes)

    async def examine(
        self, subscriptions: Sequence[Subscription], observed: Mapping[str, HandlerTimes]
    ) -> Sequence[Finding]:
        """Looks for queues that are missing, and leases that end later than they say."""
        admin, found = self.admin(), list[Finding]()
        await self._link.connection()
        for subscription in subscriptions:
            found += await admin.missing(subscription)
            found += lease_findings(subscription, heartbeat_s=self._settings.heartbeat_s)
        return found

    def admin(self) -> RabbitMQAdmin:
        return RabbitMQAdmin(
            self._link,
            self._topology,
            held_of=lambda queue: len(self._settling(queue).leases),
            drop_held_of=self._drop_held_of,
        )

    def _terms(self, subscription: Subscription) -> Terms:
        return Terms(
            lease_s=subscription.lease.total_seconds(),
            max_lease_s=max_lease_s(self._settings),
            max_receive_count=subscription.max_receive_count,
            dead_letter_queue=subscription.dead_letter_queue,
        )

    def _consumer(self, queue: str, terms: Terms) -> RabbitMQConsumer:
        consumer = RabbitMQConsumer(
            self._link, queue, terms, self._settling(queue), clock=self._clock
        )
        self._consumers.add(consumer)
        return consumer

    def _make_sessions(self, spec: QueueSpec) -> RabbitMQSessions:
        index = SessionIndex(self._link, self._topology, spec)
        longest_s = max_lease_s(self._settings)
        return RabbitMQSessions(
            self._link,
            self._topology,
            index,
            Sorter(self._sorting, index, self._clock),
            self._consumer(index.ready, Terms(lease_s=longest_s, max_lease_s=longest_s)),
            clock=self._clock,
        )

    def _settling(self, queue: str) -> RabbitMQSettling:
        # What one consumer of a queue received, another one may settle.
        if queue not in self._settlings:
            self._settlings[queue] = RabbitMQSettling(
                queue, self._topology, address=self._link.address, clock=self._clock
            )
        return self._settlings[queue]

    async def _drop_held_of(self, queue: str) -> int:
        settling = self._settling(queue)
        held = [lease.delivery for lease in settling.leases]
        refused = await settling.settle([Settlement(each, ACK) for each in held])
        return len(held) - len(refused)


def from_url(url: str, clock: Clock | None = None) -> Gateway:
    """`amqp://user:password@host:5672/vhost`, `amqps://` for TLS; see `RabbitMQSettings`."""
    return RabbitMQGateway(RabbitMQSettings.from_url(url), SYSTEM_CLOCK if clock is None else clock)


# The producer port of one queue.


class RabbitMQProducer:
    """Sends to one queue, in the order given; all of a send wait for their confirms together."""

    def __init__(self, topology: Topology, queue: str, *, max_body_bytes: int) -> None:
        self._topology = topology
        self._queue = queue
        self._max_body_bytes = max_body_bytes

    async def send(self, messages: Sequence[Message], *, delay_s: float = 0.0) -> Sequence[str]:
        """A delay is met by a stay in a queue beside this one, by a sixteenth longer at most.

        `ConnectionFailed` leaves open whether the broker has them.
        """
        if delay_s > MAX_DELAY_S:
            raise UnsupportedOperation(
                "amqp", f"a delay of {delay_s:g} s", f"{MAX_DELAY_S:g} s (30 days) is the most"
            )
        for message in messages:
            if len(message.body) > self._max_body_bytes:
                raise MessageTooLarge(self._queue, len(message.body), self._max_body_bytes)
        results = await self._topology.publish(
            self._queue, [encode(message) for message in messages], delay_s=delay_s
        )
        error = first_error(results)
        if error is None:
            return [message.id for message in messages]
        if all(type(result) is type(error) for result in results):
            raise error
        failures = zip(messages, results, strict=True)
        raise SendFailed(
            self._queue, tuple((each.id, result) for each, result in failures if result is not None)
        )

    async def aclose(self) -> None:
        """Nothing to release: channels are the gateway's."""


# The consumer port of a queue with sessions: there is nothing to receive but in sessions.


class SessionsOnly:
    """Receives nothing, and says why: a consumer beside the sorter would break the order."""

    def __init__(self, queue: str) -> None:
        self._queue = queue

    async def receive(self, *, max_count: int, wait_s: float) -> Sequence[Delivery]:
        raise UnsupportedOperation(
            "amqp",
            f"receiving from queue {self._queue!r} without a session",
            "its messages are sorted into sessions; use Consumer.accept_session, or make the "
            "queue without options={'sessions': True}",
        )

    async def settle(self, settlements: Sequence[Settlement]) -> Sequence[Refusal]:
        return [self._refusal(each.delivery) for each in settlements]

    async def extend(self, deliveries: Sequence[Delivery], *, lease_s: float) -> Sequence[Refusal]:
        return [self._refusal(each) for each in deliveries]

    async def aclose(self) -> None:
        """Nothing to release."""

    def _refusal(self, delivery: Delivery) -> Refusal:
        return Refusal(delivery, InvalidReceipt(self._queue, delivery.receipt))


# The caretaker of queues. Each question has a channel of its own: a "no" closes it.


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
        return sorted({entry.queue for entry in entries})

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
