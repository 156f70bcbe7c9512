"""Saboteurs of settling."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
from msgspec.structs import replace

from pump.capabilities import Capabilities
from pump.clock import Clock, yield_to_loop
from pump.message import Delivery
from pump.outcome import Abandon, Ack, Action, Defer, Refusal, Settlement

from ..naive import Entry, Queue
from ..naive_ports import NaiveConsumer
from .base import Saboteur


class LosesAcks(Saboteur):
    def apply(self, queue: Queue, entry: Entry, action: Action) -> None:
        if not isinstance(action, Ack):
            super().apply(queue, entry, action)


class AcceptsStaleReceipts(Saboteur):
    """Says yes to every receipt it ever gave."""

    def __init__(self, clock: Clock, capabilities: Capabilities) -> None:
        super().__init__(clock, capabilities)
        self.given: set[str] = set()

    def token(self, entry: Entry) -> str:
        token = super().token(entry)
        self.given.add(token)
        return token

    class Consumer(NaiveConsumer):
        async def settle(self, settlements: Sequence[Settlement]) -> Sequence[Refusal]:
            refused = await super().settle(settlements)
            given: set[str] = getattr(self.gateway, "given")  # noqa: B009
            return [each for each in refused if each.delivery.receipt not in given]


class AcceptsForgedReceipts(Saboteur):
    class Consumer(NaiveConsumer):
        async def settle(self, settlements: Sequence[Settlement]) -> Sequence[Refusal]:
            refused = await super().settle(settlements)
            return [each for each in refused if each.delivery.receipt.startswith("receipt-")]


class SettlesTwiceInOneBatch(Saboteur):
    class Consumer(NaiveConsumer):
        async def settle(self, settlements: Sequence[Settlement]) -> Sequence[Refusal]:
            return await super().settle(list({s.delivery: s for s in settlements}.values()))


class SettlesTwiceAtOnce(Saboteur):
    """Looks at the receipt, lets others look, and only then settles."""

    class Consumer(NaiveConsumer):
        async def settle(self, settlements: Sequence[Settlement]) -> Sequence[Refusal]:
            queue = self.gateway.find(self.subscription.queue)
            valid = {s for s in settlements if self.gateway.holder(queue, s.delivery.receipt)}
            await yield_to_loop()
            refused = await super().settle(settlements)
            return [each for each in refused if each.delivery not in {s.delivery for s in valid}]


class RefusesWithoutAReason(Saboteur):
    class Consumer(NaiveConsumer):
        def refuse(self, delivery: Delivery) -> Refusal:
            return super().refuse(replace(delivery, receipt="?"))


class AcceptsReceiptsOfOtherQueues(Saboteur):
    class Consumer(NaiveConsumer):
        async def settle(self, settlements: Sequence[Settlement]) -> Sequence[Refusal]:
            refused: list[Refusal] = []
            for settlement in settlements:
                subscription = attrs.evolve(self.subscription, queue=settlement.delivery.queue)
                port = NaiveConsumer(self.gateway, subscription)
                refused += await port.settle([settlement])
            return refused


class FailsABatchForOneStaleReceipt(Saboteur):
    class Consumer(NaiveConsumer):
        async def settle(self, settlements: Sequence[Settlement]) -> Sequence[Refusal]:
            queue = self.gateway.find(self.subscription.queue)
            if all(self.gateway.holder(queue, s.delivery.receipt) for s in settlements):
                return await super().settle(settlements)
            return [self.refuse(settlement.delivery) for settlement in settlements]


class SettlesTenAtMost(Saboteur):
    class Consumer(NaiveConsumer):
        async def settle(self, settlements: Sequence[Settlement]) -> Sequence[Refusal]:
            return await super().settle(settlements[:10])


class FailsToSettleNothing(Saboteur):
    class Consumer(NaiveConsumer):
        async def settle(self, settlements: Sequence[Settlement]) -> Sequence[Refusal]:
            assert settlements
            return await super().settle(settlements)


class IgnoresTheDelayOfADefer(Saboteur):
    def apply(self, queue: Queue, entry: Entry, action: Action) -> None:
        super().apply(queue, entry, Defer(0.0) if isinstance(action, Defer) else action)


class DefersForTheLeaseAtMost(Saboteur):
    def apply(self, queue: Queue, entry: Entry, action: Action) -> None:
        if isinstance(action, Defer):
            left_s = entry.visible_at_s - self.clock.now_s()
            action = Defer(min(action.delay_s, left_s))
        super().apply(queue, entry, action)


class DefersForASecondAtLeast(Saboteur):
    def apply(self, queue: Queue, entry: Entry, action: Action) -> None:
        if isinstance(action, Defer):
            action = Defer(max(action.delay_s, 1.0))
        super().apply(queue, entry, action)


class ForgetsToCountAttempts(Saboteur):
    def lease(self, queue: Queue, entry: Entry, lease_s: float) -> Delivery:
        entry.attempt = 0
        return super().lease(queue, entry, lease_s)


class CountsAttemptsPerConsumer(Saboteur):
    class Consumer(NaiveConsumer):
        async def receive(self, *, max_count: int, wait_s: float) -> Sequence[Delivery]:
            counts: dict[str, int] = self.__dict__.setdefault("counts", {})
            received = await super().receive(max_count=max_count, wait_s=wait_s)
            for each in received:
                counts[each.message.id] = counts.get(each.message.id, 0) + 1
            return [replace(each, attempt=counts[each.message.id]) for each in received]


class RewritesWhatIsGivenBack(Saboteur):
    def give_back(self, queue: Queue, entry: Entry, delay_s: float) -> None:
        headers = {**entry.message.headers, "retried": "yes"}
        entry.message = replace(entry.message, headers=headers)
        super().give_back(queue, entry, delay_s)


class KeepsTheLeaseOfWhatIsAbandoned(Saboteur):
    def apply(self, queue: Queue, entry: Entry, action: Action) -> None:
        if not isinstance(action, Abandon):
            super().apply(queue, entry, action)


class CountsWhatIsAbandoned(Saboteur):
    def apply(self, queue: Queue, entry: Entry, action: Action) -> None:
        super().apply(queue, entry, Defer(0.0) if isinstance(action, Abandon) else action)
