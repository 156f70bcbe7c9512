"""The ports of the naive gateway: thin, because it is the gateway that decides."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING

import attrs

from pump.errors import InvalidReceipt, MessageTooLarge, QueueMismatch, SendFailed
from pump.message import Delivery, Message
from pump.outcome import Refusal, Settlement
from pump.ports import QueueStats
from pump.subscription import MakeChannels, QueueSpec, Subscription

if TYPE_CHECKING:
    from .naive import NaiveGateway


@attrs.define(eq=False)
class NaiveConsumer:
    """Receives and settles."""

    gateway: NaiveGateway
    subscription: Subscription

    async def receive(self, *, max_count: int, wait_s: float) -> Sequence[Delivery]:
        clock = self.gateway.clock
        until_s = clock.now_s() + wait_s
        while True:
            queue = self.gateway.find(self.subscription.queue)
            taken = self.gateway.take(queue, max_count, self.subscription.lease.total_seconds())
            if taken or clock.now_s() >= until_s:
                return taken
            await self.gateway.wait(until_s)

    async def settle(self, settlements: Sequence[Settlement]) -> Sequence[Refusal]:
        queue = self.gateway.find(self.subscription.queue)
        self.gateway.count_requests(len(settlements))
        refused = []
        for settlement in settlements:
            entry = self.gateway.holder(queue, settlement.delivery.receipt)
            if entry is None:
                refused.append(self.refuse(settlement.delivery))
            else:
                self.gateway.apply(queue, entry, settlement.action)
        self.gateway.wake()
        return refused

    async def extend(self, deliveries: Sequence[Delivery], *, lease_s: float) -> Sequence[Refusal]:
        queue = self.gateway.find(self.subscription.queue)
        refused = []
        for delivery in deliveries:
            entry = self.gateway.holder(queue, delivery.receipt)
            if entry is None:
                refused.append(self.refuse(delivery))
            else:
                self.gateway.prolong(entry, lease_s)
        self.gateway.wake()
        return refused

    def refuse(self, delivery: Delivery) -> Refusal:
        return Refusal(delivery, InvalidReceipt(self.subscription.queue, delivery.receipt))

    async def aclose(self) -> None:
        """Nothing to let go of."""


@attrs.define(eq=False)
class NaiveProducer:
    """Sends."""

    gateway: NaiveGateway
    name: str

    async def send(self, messages: Sequence[Message], *, delay_s: float = 0.0) -> Sequence[str]:
        queue = self.gateway.find(self.name)
        self.gateway.check_delay(delay_s)
        failures: list[tuple[str, Exception]] = []
        for message in messages:
            try:
                self.gateway.check_size(message)
            except MessageTooLarge as error:
                failures.append((message.id, error))
                continue
            if not self.gateway.is_duplicate(queue, message):
                self.gateway.add(queue, message, delay_s)
        self.gateway.wake()
        if failures:
            raise SendFailed(self.name, tuple(failures))
        return [message.id for message in messages]

    async def aclose(self) -> None:
        """Nothing to let go of."""


@attrs.define(eq=False)
class NaiveAdmin:
    """Looks after queues."""

    gateway: NaiveGateway

    async def ensure(self, spec: QueueSpec, make: MakeChannels) -> None:
        if make is MakeChannels.ASSUME:
            return
        self.gateway.check_supported(spec)
        if make is MakeChannels.CREATE:
            self.gateway.create(spec)
            return
        difference = self.gateway.difference(self.gateway.find(spec.name), spec)
        if difference:
            raise QueueMismatch(spec.name, difference)

    async def queues(self) -> Sequence[QueueStats]:
        self.gateway.sweep()
        return [self.gateway.stats(self.gateway.stock[name]) for name in sorted(self.gateway.stock)]

    async def stats(self, queue: str) -> QueueStats:
        self.gateway.sweep()
        return self.gateway.stats(self.gateway.find(queue))

    async def peek(self, queue: str, *, max_count: int = 10) -> Sequence[Message]:
        self.gateway.check_offered("has_peek")
        return list(itertools.islice(self.gateway.show(self.gateway.find(queue)), max_count))

    async def purge(self, queue: str) -> int:
        self.gateway.check_offered("has_purge")
        return self.gateway.empty(self.gateway.find(queue))
