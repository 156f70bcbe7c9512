"""A shop whose orders are sealed, on whichever gateway, and hands that reach into its queues."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import attrs
from msgspec.structs import replace

from pump import App, Backoff, Command, RejectMessage, Subscription, headers, hybrid
from pump.clock import SYSTEM_CLOCK
from pump.events import Event, OutcomeEvent
from pump.message import Message
from pump.ports import Gateway, PayloadEncryption
from pump.stores.spill import MemorySpill
from pump.subscription import MakeChannels

_AT_ONCE = Backoff(initial=timedelta(milliseconds=1), maximum=timedelta(milliseconds=1))
_PATIENCE_S = 15.0
SECRET = "4929-1234-5678-9012"


class PlaceOrder(Command):
    """An order; `mood` says how its handler takes it."""

    card: str = SECRET
    mood: str = "calm"


class Shop:
    """One app on one gateway, and what became of its orders."""

    def __init__(self, gateway: Gateway, encryption: PayloadEncryption | None, queue: str) -> None:
        self.gateway = gateway
        self.queue = queue
        self.handled: list[PlaceOrder] = []
        self.failed: list[PlaceOrder] = []
        self.events: list[Event] = []
        self.subscription = Subscription(
            queue=queue,
            request=PlaceOrder,
            dead_letter_queue=f"{queue}-dead",
            invalid_queue=f"{queue}-invalid",
            failure=hybrid(max_retries=1, backoff=_AT_ONCE),
            wait=timedelta(seconds=1),
        )
        self.app = App(
            gateway, encryption=encryption, spill=MemorySpill(), observers=[self.events.append]
        )
        self.app.register(PlaceOrder, self._handle)
        self.app.subscribe(self.subscription)

    @property
    def outcomes(self) -> list[OutcomeEvent]:
        return [event for event in self.events if isinstance(event, OutcomeEvent)]

    @property
    def details(self) -> list[str]:
        """Why messages were rejected."""
        return [outcome.detail for outcome in self.outcomes if outcome.reason is not None]

    async def _handle(self, order: PlaceOrder) -> None:
        if order.mood == "hopeless" or (order.mood == "shaky" and order not in self.failed):
            self.failed.append(order)
            if order.mood == "hopeless":
                raise RejectMessage("no hope")
            raise ValueError("once is nothing")
        if order.mood == "talkative":
            raise ValueError(f"cannot charge {order.card}")
        self.handled.append(order)

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Shop]:
        """Open for sending, queues made, and nothing received yet."""
        async with self.app:
            for spec in self.subscription.queue_specs():
                await self.app.admin.ensure(spec, MakeChannels.CREATE)
            yield self

    async def pump_until(self, is_done: Callable[[], bool]) -> None:
        """Pump until it is so; a failure after a while says what became of messages instead."""
        async with self.app.pumping():
            try:
                async with asyncio.timeout(_PATIENCE_S):
                    while not is_done():
                        await SYSTEM_CLOCK.sleep(0.01)
            except TimeoutError:
                raise AssertionError(f"waited in vain: {self.outcomes}") from None

    async def pump_outcomes(self, count: int) -> Sequence[OutcomeEvent]:
        """Pump until so many outcomes are known, beside retries."""
        await self.pump_until(lambda: len(self._final) >= count)
        return self._final

    @property
    def _final(self) -> list[OutcomeEvent]:
        return [outcome for outcome in self.outcomes if outcome.status.value != "retrying"]

    async def take(self, queue: str | None = None) -> Message:
        """The next message as it lies in a queue, taken out of it."""
        consumer = self.gateway.consumer(attrs.evolve(self._plain(queue or self.queue)))
        try:
            async with asyncio.timeout(_PATIENCE_S):
                while not (deliveries := await consumer.receive(max_count=1, wait_s=1.0)):
                    pass
            from pump.testing.builders import ack

            assert not await consumer.settle([ack(deliveries[0])])
            return deliveries[0].message
        finally:
            await consumer.aclose()

    async def put(self, message: Message, **changes: Any) -> None:
        """Put a message into the queue as it is, or changed by somebody."""
        producer = self.gateway.producer(self.queue)
        try:
            await producer.send([replace(message, **changes)])
        finally:
            await producer.aclose()

    def _plain(self, queue: str) -> Subscription:
        return Subscription(queue=queue, request=PlaceOrder, lease=timedelta(seconds=30))


def without_rejection(message: Message) -> Message:
    """A dead letter as a redrive by hand sends it back: the metadata of its rejection stays."""
    assert headers.REJECTION_REASON in message.headers
    return replace(message, deduplication_id=None)
