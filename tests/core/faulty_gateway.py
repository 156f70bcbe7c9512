"""The memory gateway behind a way that fails when told to, and a record of all that passed."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import attrs

from gateways.memory import MemoryGateway
from pump.capabilities import Capabilities
from pump.clock import Clock
from pump.message import Delivery, Message
from pump.outcome import Action, Refusal, Settlement
from pump.ports import AdminPort, ConsumerPort, Gateway, ProducerPort, QueueStats
from pump.subscription import MakeChannels, QueueSpec, Subscription

Fault = Callable[[], Awaitable[None]]


@attrs.define(eq=False)
class Record:
    """What the broker saw."""

    calls: Counter[str] = attrs.field(factory=Counter)
    asked: list[int] = attrs.field(factory=list)
    received: list[Delivery] = attrs.field(factory=list)
    settled: list[tuple[Delivery, Action]] = attrs.field(factory=list)
    """Only what the broker accepted."""
    extended: list[Delivery] = attrs.field(factory=list)
    sent: list[tuple[str, Message]] = attrs.field(factory=list)
    producers: list[str] = attrs.field(factory=list)
    """The queue of every producer that was made."""
    most_in_hand: int = 0

    def actions(self) -> list[tuple[str, Action]]:
        """Message ids with what the broker was told of them, in order."""
        return [(delivery.message.id, action) for delivery, action in self.settled]


class FaultyGateway:
    """Everything a memory gateway can, until `fail`, `hang` or `slow` names an operation.

    Operations: open, ensure, queues, receive, settle, extend, send.
    """

    def __init__(self, clock: Clock, **capabilities: Any) -> None:
        self._clock = clock
        self._inner: Gateway = MemoryGateway(clock)
        self._capabilities = attrs.evolve(self._inner.capabilities, **capabilities)
        self._faults: dict[str, Fault] = {}
        self.record = Record()
        self.tell_lost: Callable[[Sequence[Delivery]], None] = lambda deliveries: None
        """Says to the pump that leases have ended with their connection."""

    def fail(self, operation: str, error: Exception, *, times: int | None = None) -> None:
        """Raise `error` from now on, or the next `times` times."""
        left = times

        async def fault() -> None:
            nonlocal left
            if left is not None:
                left -= 1
                if left == 0:
                    self.heal(operation)
            raise error

        self._faults[operation] = fault

    def hang(self, operation: str) -> None:
        """Never answer from now on."""

        async def fault() -> None:
            await asyncio.Event().wait()

        self._faults[operation] = fault

    def slow(self, operation: str, delay_s: float) -> None:
        """Take this long from now on."""

        async def fault() -> None:
            await self._clock.sleep(delay_s)

        self._faults[operation] = fault

    def heal(self, operation: str) -> None:
        """Work again."""
        self._faults.pop(operation, None)

    async def pass_through(self, operation: str) -> None:
        """Count a call, and let its fault happen."""
        self.record.calls[operation] += 1
        fault = self._faults.get(operation)
        if fault is not None:
            await fault()

    def is_broken(self, operation: str) -> bool:
        """Whether `operation` would fail now."""
        return operation in self._faults

    @property
    def capabilities(self) -> Capabilities:
        return self._capabilities

    async def open(self) -> None:
        await self.pass_through("open")
        await self._inner.open()

    async def aclose(self) -> None:
        await self._inner.aclose()

    def consumer(self, subscription: Subscription) -> ConsumerPort:
        return _Consumer(self._inner.consumer(subscription), self)

    def producer(self, queue: str) -> ProducerPort:
        self.record.producers.append(queue)
        return _Producer(self._inner.producer(queue), queue, self)

    def admin(self) -> AdminPort:
        return _Admin(self._inner.admin(), self)


@attrs.frozen
class _Consumer:
    inner: ConsumerPort
    gateway: FaultyGateway

    async def receive(self, *, max_count: int, wait_s: float) -> Sequence[Delivery]:
        record = self.gateway.record
        record.asked.append(max_count)
        await self.gateway.pass_through("receive")
        deliveries = await self.inner.receive(max_count=max_count, wait_s=wait_s)
        record.received.extend(deliveries)
        record.most_in_hand = max(record.most_in_hand, len(record.received) - len(record.settled))
        return deliveries

    async def settle(self, settlements: Sequence[Settlement]) -> Sequence[Refusal]:
        await self.gateway.pass_through("settle")
        refusals = await self.inner.settle(settlements)
        refused = {refusal.delivery for refusal in refusals}
        self.gateway.record.settled.extend(
            (each.delivery, each.action) for each in settlements if each.delivery not in refused
        )
        return refusals

    async def extend(self, deliveries: Sequence[Delivery], *, lease_s: float) -> Sequence[Refusal]:
        await self.gateway.pass_through("extend")
        self.gateway.record.extended.extend(deliveries)
        return await self.inner.extend(deliveries, lease_s=lease_s)

    def when_lost(self, tell: Callable[[Sequence[Delivery]], None]) -> None:
        self.gateway.tell_lost = tell

    async def aclose(self) -> None:
        await self.inner.aclose()


@attrs.frozen
class _Producer:
    inner: ProducerPort
    queue: str
    gateway: FaultyGateway

    async def send(self, messages: Sequence[Message], *, delay_s: float = 0.0) -> Sequence[str]:
        await self.gateway.pass_through("send")
        ids = await self.inner.send(messages, delay_s=delay_s)
        self.gateway.record.sent.extend((self.queue, message) for message in messages)
        return ids

    async def aclose(self) -> None:
        await self.inner.aclose()


@attrs.frozen
class _Admin:
    inner: AdminPort
    gateway: FaultyGateway

    async def ensure(self, spec: QueueSpec, make: MakeChannels) -> None:
        await self.gateway.pass_through("ensure")
        await self.inner.ensure(spec, make)

    async def queues(self) -> Sequence[QueueStats]:
        await self.gateway.pass_through("queues")
        return await self.inner.queues()

    async def stats(self, queue: str) -> QueueStats:
        await self.gateway.pass_through("queues")
        return await self.inner.stats(queue)

    async def peek(self, queue: str, *, max_count: int = 10) -> Sequence[Message]:
        return await self.inner.peek(queue, max_count=max_count)

    async def purge(self, queue: str) -> int:
        return await self.inner.purge(queue)
