"""A settler at work between a fake broker and a list of reports."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Literal

import attrs

from pump.errors import ConnectionFailed, InvalidReceipt, Throttled
from pump.loop.settler import Settler
from pump.message import Delivery
from pump.outcome import Refusal, Settlement
from pump.subscription import Subscription
from pump.testing.builders import a_delivery, ack
from pump.testing.virtual_clock import START_S, VirtualClock

Answer = Literal[
    "accept", "refuse for now", "refuse for good", "refuse every other", "fail", "hang"
]
TIMEOUT_S = 30.0


@attrs.define(eq=False)
class FakeBroker:
    """Answers as it is told to, and watches how it is asked."""

    clock: VirtualClock
    answer: Answer = "accept"
    batches: list[list[Delivery]] = attrs.field(factory=list)
    moments: list[float] = attrs.field(factory=list)
    confirmed: Counter[Delivery] = attrs.field(factory=Counter)
    refused: set[Delivery] = attrs.field(factory=set)
    held: set[Delivery] = attrs.field(factory=set)
    calls_under_way: int = 0
    most_calls: int = 0
    asked_without_lease: int = 0
    at_the_end: Callable[[], object] | None = None
    """Called in the turn of the loop after the one that answers."""

    async def settle(self, settlements: Sequence[Settlement]) -> Sequence[Refusal]:
        deliveries = [each.delivery for each in settlements]
        self.batches.append(deliveries)
        self.moments.append(self.clock.now_s() - START_S)
        self.asked_without_lease += len(set(deliveries) - self.held)
        self.calls_under_way += 1
        self.most_calls = max(self.most_calls, self.calls_under_way)
        try:
            await self.clock.sleep(0)
            return await self._answer(deliveries)
        finally:
            self.calls_under_way -= 1
            if self.at_the_end is not None:
                asyncio.get_running_loop().call_soon(self.at_the_end)
                self.at_the_end = None

    async def _answer(self, deliveries: list[Delivery]) -> Sequence[Refusal]:
        match self.answer:
            case "hang":
                await asyncio.Event().wait()
            case "fail":
                raise ConnectionFailed("broker", "away")
            case "refuse for now":
                return [Refusal(each, Throttled("broker")) for each in deliveries]
            case "refuse for good":
                return self._refuse(deliveries)
            case "refuse every other":
                self.confirmed.update(deliveries[::2])
                return self._refuse(deliveries[1::2])
            case "accept":
                self.confirmed.update(deliveries)
        return []

    def _refuse(self, deliveries: list[Delivery]) -> list[Refusal]:
        self.refused.update(deliveries)
        return [Refusal(each, InvalidReceipt("q", each.receipt)) for each in deliveries]

    async def receive(self, *, max_count: int, wait_s: float) -> Sequence[Delivery]:
        raise NotImplementedError

    async def extend(self, deliveries: Sequence[Delivery], *, lease_s: float) -> Sequence[Refusal]:
        raise NotImplementedError

    async def aclose(self) -> None:
        raise NotImplementedError


class Bench:
    """A settler at work between a fake broker and a list of reports."""

    def __init__(
        self, *, batch: int = 10, linger_s: float = 0.0, max_calls: int = 1, chance: float = 0.0
    ) -> None:
        self.clock = VirtualClock(chance=chance)
        self.broker = FakeBroker(self.clock)
        self.settled: list[Delivery] = []
        self.lost: list[Delivery] = []
        self.submitted: list[Delivery] = []
        self.in_flight = 1_000
        self.settler = Settler(
            self.broker,
            Subscription(queue="orders", request=dict, lease=timedelta(seconds=TIMEOUT_S)),
            batch=batch,
            linger_s=linger_s,
            max_calls=max_calls,
            clock=self.clock,
            holds=self.broker.held.__contains__,
            in_flight=lambda: self.in_flight,
            on_settled=lambda batch: self.settled.extend(each.delivery for each in batch),
            on_lost=lambda settlement: self.lost.append(settlement.delivery),
            on_call_ended=lambda ended: None,
        )
        self.running = asyncio.create_task(self.settler.run())

    def submit(self, count: int = 1) -> list[Delivery]:
        deliveries = [a_delivery() for _ in range(count)]
        self.submitted += deliveries
        self.broker.held.update(deliveries)
        for delivery in deliveries:
            self.settler.submit(ack(delivery))
        return deliveries

    async def stop(self) -> None:
        self.running.cancel()
        await asyncio.wait([self.running])
        assert self.running.cancelled()
