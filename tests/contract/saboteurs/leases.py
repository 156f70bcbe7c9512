"""Saboteurs of leases."""

from __future__ import annotations

from collections.abc import Sequence

from pump.message import Delivery
from pump.outcome import Refusal

from ..naive import Entry, Queue
from ..naive_ports import NaiveConsumer
from .base import Saboteur


class NeverEndsALease(Saboteur):
    def sweep(self) -> None:
        pass


class HalvesTheLease(Saboteur):
    def lease(self, queue: Queue, entry: Entry, lease_s: float) -> Delivery:
        return super().lease(queue, entry, lease_s / 2)


class KeepsReceiptsValidAfterTheLease(Saboteur):
    """Until somebody else takes the message."""

    def sweep(self) -> None:
        pass

    def is_visible(self, entry: Entry) -> bool:
        return entry.visible_at_s <= self.clock.now_s()


class GivesAMessageOneReceiptForEver(Saboteur):
    def token(self, entry: Entry) -> str:
        return f"receipt-of-{entry.number}"


class RepeatsReceipts(Saboteur):
    """The next round of deliveries gets the tokens of the round before."""

    def token(self, entry: Entry) -> str:
        return f"receipt-{(entry.number + entry.attempt) % 50}"


class ExtendsNothing(Saboteur):
    def prolong(self, entry: Entry, lease_s: float) -> None:
        pass


class AddsToTheLease(Saboteur):
    def prolong(self, entry: Entry, lease_s: float) -> None:
        entry.visible_at_s += lease_s


class ExtendsForEver(Saboteur):
    def prolong(self, entry: Entry, lease_s: float) -> None:
        entry.visible_at_s = float("inf")


class ExtendsTheWholeQueue(Saboteur):
    class Consumer(NaiveConsumer):
        async def extend(
            self, deliveries: Sequence[Delivery], *, lease_s: float
        ) -> Sequence[Refusal]:
            refused = await super().extend(deliveries, lease_s=lease_s)
            for entry in self.gateway.find(self.subscription.queue).entries:
                if entry.receipt is not None and len(refused) < len(deliveries):
                    self.gateway.prolong(entry, lease_s)
            return refused


class ExtendsNoneWhenOneIsRefused(Saboteur):
    class Consumer(NaiveConsumer):
        async def extend(
            self, deliveries: Sequence[Delivery], *, lease_s: float
        ) -> Sequence[Refusal]:
            queue = self.gateway.find(self.subscription.queue)
            refused = [
                self.refuse(each)
                for each in deliveries
                if self.gateway.holder(queue, each.receipt) is None
            ]
            return refused or await super().extend(deliveries, lease_s=lease_s)


class AcceptsEveryExtension(Saboteur):
    class Consumer(NaiveConsumer):
        async def extend(
            self, deliveries: Sequence[Delivery], *, lease_s: float
        ) -> Sequence[Refusal]:
            await super().extend(deliveries, lease_s=lease_s)
            return []


class LosesWhatAClosedConsumerHeld(Saboteur):
    class Consumer(NaiveConsumer):
        async def aclose(self) -> None:
            entries = self.gateway.find(self.subscription.queue).entries
            entries[:] = [entry for entry in entries if entry.receipt is None]
