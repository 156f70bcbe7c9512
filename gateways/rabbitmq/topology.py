"""Where messages are published to: queues, delay queues beside them, and the list of them all."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Collection, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Self

import attrs

from pump.backoff import RECONNECT
from pump.capabilities import OrderingMode
from pump.clock import Clock
from pump.errors import (
    AccessDenied,
    ConfigurationError,
    GatewayError,
    PumpError,
    QueueMismatch,
    QueueNotFound,
    Throttled,
    UnsupportedOperation,
)
from pump.message import new_id
from pump.observability import vocabulary
from pump.observability.log import get_logger
from pump.subscription import QueueSpec
from pump.tasks import look_at
from pump.versions import server_version

from .connection import RabbitMQLink
from .errors import Where, translated
from .names import delay_queue, sessions_name, step_ms
from .publisher import Publisher, PublishResult
from .wire import Parcel

if TYPE_CHECKING:
    from .amqp import Channel, Received


# Which queues there are: AMQP cannot say, so their names are kept in a queue of their own.
#
# `pump.queues` holds one message a queue that a gateway has made, delay queues included; a queue
# with sessions has another one, of the queues that its sessions have. Reading it is receiving all
# of it, alone, and letting go of the channel, which puts everything back. What is there twice, or
# is told to be gone, is taken out on the way.

REGISTRY = "pump.queues"
FRESH_FOR_S = 30.0
"""How long an earlier look at the registry will do for an estimate."""
_TRIES = 12
_READING_S = 5.0


@attrs.frozen(order=True)
class RegistryEntry:
    """A queue, and whose delay queue it is, or what else it is one of."""

    queue: str
    of: str = ""
    role: str = ""


class Registry:
    """The queues that gateways have made, and those that this one was told of.

    Where this user may not keep such a queue, only the latter.
    """

    def __init__(
        self, link: RabbitMQLink, publisher: Publisher, clock: Clock, *, name: str = REGISTRY
    ) -> None:
        self._link = link
        self._publisher = publisher
        self._name = name
        self._clock = clock
        self._told: set[RegistryEntry] = set()
        self._written: set[RegistryEntry] = set()
        self._read_at_s: float | None = None
        self._reading = asyncio.Lock()

    def note(self, queue: str) -> None:
        """Know of a queue that others may have made; in this gateway only."""
        self._told.add(RegistryEntry(queue))

    async def add(self, entry: RegistryEntry) -> None:
        """Make it known to every client, unless it is."""
        self._told.add(entry)
        if self._read_at_s is None:
            await self.entries()
        if entry in self._written:
            return
        try:
            await self.write(entry)
        except GatewayError:
            # The queue is there all the same; the next `ensure` tries again.
            return

    async def write(self, *entries: RegistryEntry) -> None:
        """Make them known to every client, again if need be; raises when that cannot be done."""
        if self._read_at_s is None:
            await self.entries()
        bodies = [json.dumps(attrs.asdict(entry)).encode() for entry in entries]
        parcels = [Parcel(body=body, properties={"message_id": new_id()}) for body in bodies]
        results = await self._publisher.publish(self._name, parcels)
        if (error := first_error(results)) is not None:
            raise error
        self._written.update(entries)

    async def has_written(self, *entries: RegistryEntry) -> bool:
        """Whether every client can know of all of these, as of now."""
        await self.entries()
        return self._written.issuperset(entries)

    async def entries(self, *, is_estimate: bool = False) -> set[RegistryEntry]:
        """All that are known; for an estimate those of a moment ago will do."""
        async with self._reading:
            if not (is_estimate and self._is_fresh()):
                self._written = await self._read(gone=())
            return self._written | self._told

    async def remove(self, gone: Collection[RegistryEntry]) -> None:
        """Forget queues that are no more."""
        self._told.difference_update(gone)
        if self._written.isdisjoint(gone):
            return
        async with self._reading:
            self._written = await self._read(gone=gone)

    def _is_fresh(self) -> bool:
        return self._read_at_s is not None and self._clock.now_s() - self._read_at_s < FRESH_FOR_S

    async def _read(self, *, gone: Collection[RegistryEntry]) -> set[RegistryEntry]:
        for attempt in range(1, _TRIES + 1):
            try:
                return await self._read_alone(gone)
            except AccessDenied:
                # Another client reads it, or we may not.
                if attempt == _TRIES:
                    break
            await self._clock.sleep(min(RECONNECT.delay_s(attempt, self._clock.chance()), 0.5))
        return self._written

    async def _read_alone(self, gone: Collection[RegistryEntry]) -> set[RegistryEntry]:
        where = Where(self._link.address, "reading", self._name)
        async with self._link.brief_channel(where) as channel:
            declared = await channel.queue_declare(
                self._name, durable=True, arguments={"x-queue-type": "classic"}
            )
            found: list[Received] = []
            await self._receive_all(channel, found, declared.message_count or 0)
            kept, superfluous = _sorted_out(found, gone)
            for tag in superfluous:
                await channel.basic_ack(tag, wait=False)
        self._read_at_s = self._clock.now_s()
        return kept

    async def _receive_all(self, channel: Channel, found: list[Received], count: int) -> None:
        has_all = asyncio.Event()

        async def on_received(received: Received) -> None:
            found.append(received)
            if len(found) >= count:
                has_all.set()

        await channel.basic_consume(self._name, on_received, exclusive=True)
        if count:
            try:
                async with self._clock.timeout(_READING_S):
                    await has_all.wait()
            except TimeoutError:
                return


def _sorted_out(
    found: list[Received], gone: Collection[RegistryEntry]
) -> tuple[set[RegistryEntry], list[int]]:
    """The entries, and the delivery tags of what says nothing new."""
    kept: set[RegistryEntry] = set()
    superfluous: list[int] = []
    for received in found:
        entry = _entry(received.body)
        if entry is None or entry in kept or entry in gone:
            superfluous.append(int(received.delivery_tag or 0))
        else:
            kept.add(entry)
    return kept, superfluous


def _entry(body: bytes) -> RegistryEntry | None:
    try:
        match json.loads(body):
            case {"queue": str(queue), "of": str(of), **rest}:
                return RegistryEntry(queue, of, str(rest.get("role", "")))
    except ValueError:
        return None
    return None


DELAY = "delay"
"""What a delay queue is in the registry."""
_DELAYS = "*delays"
"""What publishes to delay queues, of which there are too many for a channel each; no queue is
called so."""
DECLARED_FOR_S = 3600.0
"""How long a delay queue is taken for granted: well within the day it lives unused."""
ANSWER_S = 5.0
"""How long a queue that has a leader takes to answer, at the very most."""
_log = get_logger("gateways.rabbitmq")
_SCRATCH = "pump.scratch"
_WRITTEN_BY_ITSELF_S = 2.0
"""Twice as long as RabbitMQ takes to write a new queue down by itself, when it is left alone."""


class LeaderProbe:
    """Asks queues for a message, which only their leader answers: a count of zero is also what
    RabbitMQ says of a queue that has none at the moment.

    Over a connection of its own, made for the first question and anew after one that was not
    answered. What it is given goes back at once with that connection, one count older.
    """

    def __init__(self, link: RabbitMQLink, clock: Clock) -> None:
        self._link = link
        self._clock = clock
        self._opened = AsyncExitStack()
        self._channel: Channel | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._close()

    async def get(self, queue: str) -> Received | None:
        """Its answer, which may be that there is nothing; None when no node has answered."""
        from . import amqp

        where = Where(self._link.address, "reading", queue)
        if self._channel is None:
            self._channel = await self._opened.enter_async_context(self._link.channel_apart(where))
        asking = asyncio.ensure_future(self._channel.basic_get(queue))
        asking.add_done_callback(look_at)
        try:
            async with self._clock.timeout(ANSWER_S):
                with translated(where):
                    answer = await asyncio.shield(asking)
            if not amqp.is_empty(answer):
                await self._close()
            return answer
        except TimeoutError:
            # Nothing more is answered on a channel that waits for an answer.
            await self._close()
            return None
        except GatewayError:
            await self._close()
            raise

    async def _close(self) -> None:
        self._channel = None
        await self._opened.aclose()


class Topology:
    """Publishes to queues, at once or after a stay beside them; makes what it needs for that.

    Publishing has a connection of its own: a broker that is short of memory or disk stops
    reading from those that publish, and acks must still get through.
    """

    def __init__(
        self, link: RabbitMQLink, publishing: RabbitMQLink, clock: Clock, *, patience_s: float
    ) -> None:
        self._link = link
        self._publishing = publishing
        self._clock = clock
        self._patience_s = patience_s
        self._publishers: dict[str, Publisher] = {}
        self._declared_at_s: dict[str, float] = {}
        self._declaring = asyncio.Lock()
        self._sessions: dict[str, Registry] = {}
        self.registry = Registry(link, self.publisher(REGISTRY), clock)

    async def publish(
        self, queue: str, parcels: Sequence[Parcel], *, delay_s: float = 0.0
    ) -> list[PublishResult]:
        """What became of each; all are confirmed, or their error says why not."""
        if not parcels:
            return []
        if delay_s <= 0:
            return await self.publisher(queue).publish(queue, parcels)
        ttl_ms = step_ms(delay_s)
        stay = delay_queue(queue, ttl_ms)
        await self._declare_stay(queue, stay, ttl_ms)
        publisher = self.publisher(_DELAYS)
        results = await publisher.publish(stay, parcels)
        gone = [at for at, result in enumerate(results) if isinstance(result, QueueNotFound)]
        if gone:
            # Removed meanwhile, by a broker that was set up anew or by an operator.
            self._declared_at_s.pop(stay, None)
            await self._declare_stay(queue, stay, ttl_ms)
            repeated = await publisher.publish(stay, [parcels[at] for at in gone])
            for at, result in zip(gone, repeated, strict=True):
                results[at] = result
        return results

    async def count(self, queue: str) -> int:
        """How many messages are ready in a queue; `QueueNotFound` when there is none."""
        async with self._link.brief_channel(self._where("declaring", queue)) as channel:
            found = await channel.queue_declare(queue, passive=True)
            return found.message_count or 0

    async def secure(self) -> None:
        """Return when every queue that was declared before this call would survive a kill of the
        broker, with what is confirmed in it.

        RabbitMQ writes the name of a new quorum queue into the directory of its logs up to a
        second after it has declared it. Killed before that, it comes back with the queue and
        without its messages, confirmed or not. Declaring one more writes those before it at once.
        """
        name = f"{_SCRATCH}.{new_id()}"
        try:
            async with self._link.brief_channel(self._where("declaring", name)) as channel:
                await channel.queue_declare(name, durable=True, arguments=scratch_arguments())
                await channel.queue_delete(name)
        except (AccessDenied, QueueMismatch):
            # Not allowed, or one queue too many for the virtual host.
            await self._clock.sleep(_WRITTEN_BY_ITSELF_S)

    async def without_leader(self, queues: Sequence[str]) -> list[str]:
        """Those that are there and that no node answers for.

        A broker that is killed before it has written a new queue down comes back with the queue,
        and never elects a leader for it: what is sent to it is never confirmed, and no restart
        helps, only removing it.
        """
        # What has messages to show has a leader that counts them.
        empty = [each for each in queues if await self._is_empty(each)]
        async with self.leader_probe() as probe:
            return [each for each in empty if await probe.get(each) is None]

    def leader_probe(self) -> LeaderProbe:
        """What asks queues for more than their count."""
        return LeaderProbe(self._link, self._clock)

    async def remove(self, queue: str) -> None:
        """Remove a queue, and whatever is in it."""
        async with self._link.brief_channel(self._where("removing", queue)) as channel:
            await channel.queue_delete(queue)

    async def stays_of(self, queue: str, *, is_estimate: bool) -> list[str]:
        """The delay queues beside a queue."""
        entries = await self.registry.entries(is_estimate=is_estimate)
        return sorted(each.queue for each in entries if each.of == queue and each.role == DELAY)

    async def has_sessions(self, queue: str) -> bool:
        """Whether sessions of a queue were ever accepted, as far as was known a moment ago."""
        entries = await self.registry.entries(is_estimate=True)
        return any(each.queue == sessions_name(queue) and each.of == queue for each in entries)

    def sessions_of(self, queue: str) -> Registry:
        """Which queues the sessions of a queue have; always the same one."""
        name = sessions_name(queue)
        if queue not in self._sessions:
            self._sessions[queue] = Registry(
                self._link, self.publisher(name), self._clock, name=name
            )
        return self._sessions[queue]

    async def aclose(self) -> None:
        """Close the channels that were needed."""
        await asyncio.gather(*(each.aclose() for each in self._publishers.values()))

    def publisher(self, purpose: str) -> Publisher:
        """What publishes to a queue, or for another purpose; always the same one."""
        if purpose not in self._publishers:
            self._publishers[purpose] = Publisher(
                self._publishing, clock=self._clock, patience_s=self._patience_s
            )
        return self._publishers[purpose]

    async def _declare_stay(self, queue: str, stay: str, ttl_ms: int) -> None:
        async with self._declaring:
            since_s = self._clock.now_s() - self._declared_at_s.get(stay, float("-inf"))
            if since_s < DECLARED_FOR_S:
                return
            # A delay queue that leads nowhere would keep its messages from all consumers.
            await self.count(queue)
            entry = RegistryEntry(stay, of=queue, role=DELAY)
            arguments = delay_arguments(queue, ttl_ms, server=self._link.server)
            await self._forget_if_gone(entry)
            # To declare a quorum queue again, or to publish to it, does not put off its end; only
            # to receive from it does, as both of these do. What comes goes back with its channel.
            if not await self._use(stay, arguments) and await self.without_leader([stay]):
                await self._remove_unused(entry)
                await self._use(stay, arguments)
            await self.secure()
            await self.registry.add(entry)
            self._declared_at_s[stay] = self._clock.now_s()

    async def _forget_if_gone(self, entry: RegistryEntry) -> None:
        """What was entered of a queue that was removed since says nothing of the next one."""
        try:
            await self.count(entry.queue)
        except QueueNotFound:
            await self.registry.entries(is_estimate=True)
            await self.registry.remove([entry])

    async def _use(self, stay: str, arguments: dict[str, Any]) -> bool:
        """Declare a delay queue, and receive from it if there is something; whether there is."""
        async with self._link.brief_channel(self._where("declaring", stay)) as channel:
            declared = await channel.queue_declare(stay, durable=True, arguments=arguments)
            if not declared.message_count:
                return False
            await channel.basic_get(stay)
            return True

    async def _remove_unused(self, entry: RegistryEntry) -> None:
        """Remove a delay queue without a leader; `Throttled` for one that may have messages, whose
        nodes may come back.
        """
        # Nothing was confirmed in it before it was entered; where no entries can be written, that
        # there is none says nothing.
        has_entries = await self.registry.has_written(RegistryEntry(entry.of))
        if not has_entries or await self.registry.has_written(entry):
            raise Throttled(self._where("declaring", entry.queue).target)
        _log.warning(vocabulary.QUEUE_REPLACED, queue=entry.queue)
        await self.remove(entry.queue)

    async def _is_empty(self, queue: str) -> bool:
        try:
            return not await self.count(queue)
        except QueueNotFound:
            return False

    def _where(self, operation: str, queue: str) -> Where:
        return Where(self._link.address, operation, queue)


def first_error(results: Sequence[PublishResult]) -> PumpError | None:
    """The first thing that went wrong."""
    return next((result for result in results if result is not None), None)


# The arguments a queue is declared with: what RabbitMQ compares when it is declared again. Pure.
#
# Every queue is a quorum queue: it counts deliveries, and survives the loss of a node. With
# `max_receive_count` the broker itself dead-letters at that many deliveries, also when consumers
# die; it does so without losing anything (at-least-once), which needs `x-overflow`. Queues with
# sessions and those of the sessions know no such limit: what waits to be sorted is not tried, and
# what a session hands back untried the broker counts all the same, so its holder judges.

DELIVERY_LIMIT = "x-delivery-limit"
MINUTE_MS = 60 * 1000
DAY_MS = 24 * 60 * MINUTE_MS
SESSIONS = "sessions"
_OPTIONS = ("arguments", SESSIONS)


def arguments_of(spec: QueueSpec, *, server: str) -> dict[str, Any]:
    """The arguments of a queue, and of each of its sessions' where it has any;
    `UnsupportedOperation` for what RabbitMQ cannot be.
    """
    if has_sessions(spec):
        spec = attrs.evolve(spec, max_receive_count=None, dead_letter_queue=None)
    _check_order(spec)
    arguments: dict[str, Any] = {"x-queue-type": "quorum", **_own(spec.options)}
    if server_version(server) >= (4,):
        # RabbitMQ 4 drops what was delivered 20 times, unless it is told not to.
        arguments.setdefault(DELIVERY_LIMIT, -1)
    if spec.max_receive_count is not None and spec.dead_letter_queue is not None:
        arguments |= {
            # It counts how often a message was taken back.
            DELIVERY_LIMIT: spec.max_receive_count - 1,
            **dead_lettering_to(spec.dead_letter_queue),
        }
    return arguments


def has_sessions(spec: QueueSpec) -> bool:
    """Whether a queue's messages are to be sorted by their groups."""
    asked = spec.options.get(SESSIONS, False)
    if not isinstance(asked, bool):
        raise ConfigurationError("Subscription.options", asked, "sessions is True or False")
    return asked


def delay_arguments(queue: str, ttl_ms: int, *, server: str) -> dict[str, Any]:
    """Of a queue whose messages go on to `queue` after so long. It is removed, with what is in it,
    when it was not used for a day longer than that, so it is used in good time.
    """
    return {
        "x-queue-type": "quorum",
        "x-message-ttl": ttl_ms,
        "x-expires": ttl_ms + DAY_MS,
        # Its first message is looked at whenever it is used.
        **({DELIVERY_LIMIT: -1} if server_version(server) >= (4,) else {}),
        **dead_lettering_to(queue),
    }


def attempts_arguments() -> dict[str, Any]:
    """Of a queue that keeps the last note only. A classic one: it is there at once, and a note that
    is lost costs an attempt, no message.
    """
    return {"x-queue-type": "classic", "x-max-length": 1, "x-expires": 30 * DAY_MS}


def scratch_arguments() -> dict[str, Any]:
    """Of a queue that is removed at once, by the broker where its maker has died."""
    return {"x-queue-type": "quorum", "x-expires": MINUTE_MS}


def dead_lettering_to(queue: str) -> dict[str, Any]:
    """Dead-lettering that keeps a message until the other queue has confirmed it."""
    return {
        "x-dead-letter-exchange": "",
        "x-dead-letter-routing-key": queue,
        "x-dead-letter-strategy": "at-least-once",
        "x-overflow": "reject-publish",
    }


def _own(options: Mapping[str, Any]) -> Mapping[str, Any]:
    for key in options:
        if key not in _OPTIONS:
            raise ConfigurationError(
                "Subscription.options", key, f"the amqp gateway knows: {', '.join(_OPTIONS)}"
            )
    own = options.get("arguments", {})
    if not isinstance(own, Mapping):
        raise ConfigurationError(
            "Subscription.options", own, "arguments is a mapping, such as {'x-max-length': 1000}"
        )
    return own


def _check_order(spec: QueueSpec) -> None:
    if spec.ordering is not OrderingMode.FIFO:
        raise UnsupportedOperation(
            "amqp",
            f"newest first on queue {spec.name!r}",
            "RabbitMQ's queues are oldest first",
        )
    if spec.ordering_guarantee:
        raise UnsupportedOperation(
            "amqp",
            f"strict order on queue {spec.name!r}",
            "RabbitMQ delivers a delayed retry after its successors; make the queue with "
            "options={'sessions': True} and accept sessions, which keep the order of their group, "
            "or use another gateway",
        )
