"""Scratch: a gateway on which every queue is a throw-away one, whatever name it is asked for.

A run goes through it, so neither the pump nor what handlers post reaches a real queue; and there is
no call by which it could be made to look into one, or to purge it.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from typing import Protocol, runtime_checkable

import attrs

from ..capabilities import Capabilities
from ..errors import PumpError
from ..message import Message
from ..ports import AdminPort, ConsumerPort, Gateway, ProducerPort, QueueStats
from ..subscription import DeadLetter, Hybrid, MakeChannels, QueueSpec, Subscription


@attrs.frozen(kw_only=True)
class Leftover:
    """What became of a throw-away queue."""

    queue: str
    is_removed: bool = False
    is_empty: bool = False
    """Whether it was purged, or was seen to hold nothing."""
    why: str = ""
    """What kept it from being purged or removed; empty when nothing did."""


_NOT_YET = "the run was ended before it was emptied"


class ScratchGateway:
    """Another gateway with other queues. Its sessions and examinations are not passed on."""

    def __init__(self, gateway: Gateway, names: ScratchNames, *, keeps_options: bool) -> None:
        self.inner = gateway
        self.names = names
        self._keeps_options = keeps_options
        self._left: dict[str, Leftover] = {}
        self._there: set[str] = set()
        self._making = asyncio.Lock()

    @property
    def capabilities(self) -> Capabilities:
        return self.inner.capabilities

    @property
    def queues(self) -> tuple[str, ...]:
        """Every throw-away queue that was made, or may have been, the first one first."""
        return tuple(self._left)

    @property
    def left(self) -> tuple[Leftover, ...]:
        """Those that are still there, as far as is known, and how they were left."""
        return tuple(each for each in self._left.values() if not each.is_removed)

    async def open(self) -> None:
        await self.inner.open()

    async def aclose(self) -> None:
        await self.inner.aclose()

    def consumer(self, subscription: Subscription) -> ConsumerPort:
        return self.inner.consumer(self.subscription(subscription))

    def producer(self, queue: str) -> ProducerPort:
        return ScratchProducer(self, self.names.of(queue))

    def admin(self) -> AdminPort:
        return ScratchAdmin(self)

    def subscription(self, subscription: Subscription) -> Subscription:
        """The same, on throw-away queues: made where missing, and with a dead-letter queue."""
        names = self.names
        failure = subscription.failure
        if isinstance(failure, DeadLetter | Hybrid) and failure.queue is not None:
            failure = attrs.evolve(failure, queue=names.of(failure.queue))
        invalid = subscription.invalid_queue
        return attrs.evolve(
            subscription,
            queue=names.of(subscription.queue),
            failure=failure,
            dead_letter_queue=names.of(
                subscription.dead_letter_queue or _dead_beside(subscription.queue)
            ),
            invalid_queue=None if invalid is None else names.of(invalid),
            make_channels=MakeChannels.CREATE,
            unacceptable_limit=None,
            options=subscription.options if self._keeps_options else {},
        )

    async def ensure(self, spec: QueueSpec) -> None:
        """Make a throw-away queue for what is asked for."""
        dead = spec.dead_letter_queue
        scratch = attrs.evolve(
            spec,
            name=self.names.of(spec.name),
            dead_letter_queue=None if dead is None else self.names.of(dead),
            options=spec.options if self._keeps_options else {},
        )
        # Before it is asked for: an answer that is lost must not leave a queue without a name.
        self._left.setdefault(scratch.name, Leftover(queue=scratch.name, why=_NOT_YET))
        await self.inner.admin().ensure(scratch, MakeChannels.CREATE)
        self._there.add(scratch.name)

    async def ensure_name(self, queue: str) -> None:
        """Make a throw-away queue of this name, unless that was done."""
        if queue in self._there:
            return
        # Handlers that run at once may all be the first to send to it.
        async with self._making:
            if queue not in self._there:
                await self.ensure(QueueSpec(name=queue))

    async def clean_up(self) -> None:
        """Remove what was made, or empty it where it cannot be removed; `left` says what came of
        it. Errors of the broker are told there too.
        """
        # A queue before its dead-letter queue: while the one names the other, some brokers refuse.
        for queue in reversed(self.queues):
            try:
                self._left[queue] = await self._cleaned(queue)
            except PumpError as error:
                self._left[queue] = Leftover(queue=queue, why=str(error))

    async def _cleaned(self, queue: str) -> Leftover:
        if isinstance(self.inner, RemovesQueues):
            await self.inner.remove_queues([queue])
            return Leftover(queue=queue, is_empty=True, is_removed=True)
        admin = self.inner.admin()
        if self.capabilities.has_purge:
            await admin.purge(queue)
            return Leftover(queue=queue, is_empty=True)
        stats = await admin.stats(queue)
        is_empty = not (stats.visible + stats.in_flight + stats.delayed)
        return Leftover(queue=queue, is_empty=is_empty)


class ScratchProducer:
    """Sends to a throw-away queue, which is made for the first send."""

    def __init__(self, gateway: ScratchGateway, queue: str) -> None:
        self._gateway = gateway
        self._queue = queue
        self._port = gateway.inner.producer(queue)

    async def send(self, messages: Sequence[Message], *, delay_s: float = 0.0) -> Sequence[str]:
        await self._gateway.ensure_name(self._queue)
        return await self._port.send(messages, delay_s=delay_s)

    async def aclose(self) -> None:
        await self._port.aclose()


class ScratchAdmin:
    """Looks after throw-away queues, and knows no others."""

    def __init__(self, gateway: ScratchGateway) -> None:
        self._gateway = gateway
        self._admin = gateway.inner.admin()

    async def ensure(self, spec: QueueSpec, make: MakeChannels) -> None:
        """Makes it whatever `make` says: what is there already is a real queue."""
        await self._gateway.ensure(spec)

    async def queues(self) -> Sequence[QueueStats]:
        return [await self._admin.stats(queue) for queue in self._gateway.queues]

    async def stats(self, queue: str) -> QueueStats:
        return await self._admin.stats(self._gateway.names.of(queue))

    async def peek(self, queue: str, *, max_count: int = 10) -> Sequence[Message]:
        return await self._admin.peek(self._gateway.names.of(queue), max_count=max_count)

    async def purge(self, queue: str) -> int:
        return await self._admin.purge(self._gateway.names.of(queue))


def _dead_beside(queue: str) -> str:
    stem, fifo = queue.removesuffix(".fifo"), ".fifo" if queue.endswith(".fifo") else ""
    return f"{stem}-dead{fifo}"


# Names of throw-away queues: told from real ones at a glance, and allowed by every broker.

_STRANGE = re.compile(r"[^A-Za-z0-9_-]+")
_FIFO = ".fifo"
_MAX_STEM = 48
"""With what follows it a name stays below 80 characters, the most that SQS takes."""


@attrs.define
class ScratchNames:
    """Gives each queue's name another one, always the same, that no real queue has."""

    token: str
    """What no other run has."""
    _names: dict[str, str] = attrs.field(factory=dict, init=False)

    def of(self, queue: str) -> str:
        """The throw-away name for a queue; that of a throw-away queue is its own."""
        if queue in self._names.values():
            return queue
        if queue not in self._names:
            self._names[queue] = self._unlike_others(queue)
        return self._names[queue]

    def _unlike_others(self, queue: str) -> str:
        name = scratch_name(queue, self.token)
        if name not in self._names.values():
            return name
        return scratch_name(queue, f"{self.token}-{len(self._names)}")


def scratch_name(queue: str, token: str) -> str:
    """`orders` becomes `orders-bench-TOKEN`; of an ARN or a URL only the queue's own name stays.

    What ends in .fifo still does: on SQS that makes it an ordered queue.
    """
    ending = _FIFO if queue.endswith(_FIFO) else ""
    own = re.split(r"[:/]", queue.removesuffix(_FIFO))[-1]
    stem = _STRANGE.sub("-", own)[:_MAX_STEM].strip("-") or "queue"
    return f"{stem}-bench-{token}{ending}"


# What a gateway may offer beside its ports, for those who measure it.


@runtime_checkable
class CountsRequests(Protocol):
    """A gateway may be one too: it counts what it asks of its provider."""

    @property
    def request_counts(self) -> Mapping[str, int]:
        """Requests so far by what they are, in the provider's words; repetitions included."""


@runtime_checkable
class RemovesQueues(Protocol):
    """A gateway may be one too: it can remove a queue, with everything in it, for good."""

    async def remove_queues(self, queues: Sequence[str]) -> None:
        """Remove these queues; one that is not there counts as removed.

        Raises `GatewayError`, after which any of them may be there still.
        """


# Removal: how to get rid of a throw-away queue that a gateway cannot remove. Pure.

_HINTS = {
    "sqs": "aws sqs delete-queue --queue-url "
    '"$(aws sqs get-queue-url --queue-name {queue} --query QueueUrl --output text)"',
    "s3": "aws s3 rm --recursive {where}/queues/{queue}/",
    "amqp": "rabbitmqctl delete_queue {queue}",
    "nats": "nats stream rm {queue}",
    "postgres": "psql -c \"DELETE FROM pumphouse.queue WHERE name = '{queue}'\"",
    "sb": "az servicebus queue delete --name {queue} --namespace-name … --resource-group …",
}
_ANY = "your broker's own tools"


def removal_hint(gateway: str, queue: str, where: str) -> str:
    """What removes a queue on a gateway of this scheme and URL: a command, or whose tools."""
    # A gateway that is an object does not say in which bucket it is.
    place = where.rstrip("/") if where.partition("://")[2] else f"{gateway}://…"
    return _HINTS.get(gateway, _ANY).format(queue=queue, where=place)
