"""Who reads a dead-letter queue may be faster than the settlement of the original."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from gateways.memory import MemoryGateway
from pump import App, RejectMessage, Subscription, current_context
from pump.crypto import Encryption, Key, KeyRing, MemoryNonces, NonceTracking
from pump.events import Event, OutcomeEvent, Status
from pump.message import Delivery
from pump.outcome import Refusal, Settlement
from pump.ports import ConsumerPort
from pump.stores.spill import MemorySpill

from .bench import PlaceOrder

_PATIENCE_S = 15.0


class LateSettlements:
    """A port that settles nothing before it may."""

    def __init__(self, port: ConsumerPort, may_settle: asyncio.Event) -> None:
        self._port = port
        self._may_settle = may_settle

    async def receive(self, *, max_count: int, wait_s: float) -> Sequence[Delivery]:
        return await self._port.receive(max_count=max_count, wait_s=wait_s)

    async def settle(self, settlements: Sequence[Settlement]) -> Sequence[Refusal]:
        await self._may_settle.wait()
        return await self._port.settle(settlements)

    async def extend(self, deliveries: Sequence[Delivery], *, lease_s: float) -> Sequence[Refusal]:
        return await self._port.extend(deliveries, lease_s=lease_s)

    async def aclose(self) -> None:
        await self._port.aclose()


class LateGateway(MemoryGateway):
    """Settles the messages of `orders` only once the reader of dead letters has had its turn."""

    def __init__(self) -> None:
        super().__init__()
        self.may_settle = asyncio.Event()

    def consumer(self, subscription: Subscription) -> ConsumerPort:
        port = super().consumer(subscription)
        return LateSettlements(port, self.may_settle) if subscription.queue == "orders" else port


async def test_when_a_dead_letter_is_read_before_its_original_is_settled_then_it_is_no_replay() -> (
    None
):
    """T6: refused as a copy, a dead letter that no further queue takes would be gone."""
    gateway = LateGateway()
    outcomes: asyncio.Queue[OutcomeEvent] = asyncio.Queue()

    def note(event: Event) -> None:
        if isinstance(event, OutcomeEvent):
            outcomes.put_nowait(event)

    tracking = NonceTracking(store=MemoryNonces())
    encryption = Encryption(KeyRing(Key.generate("k")), nonces=tracking)
    app = App(gateway, encryption=encryption, spill=MemorySpill(), observers=[note])
    app.subscribe(Subscription(queue="orders", request=PlaceOrder, dead_letter_queue="dead"))
    app.subscribe(Subscription(queue="dead", request=PlaceOrder))
    app.register(PlaceOrder, refuse_orders)

    async with app:
        await app.post(PlaceOrder(), queue="orders")
        async with app.pumping(), asyncio.timeout(_PATIENCE_S):
            read = await outcomes.get()
            gateway.may_settle.set()
            rejected = await outcomes.get()

    assert (read.queue, read.status, read.detail) == ("dead", Status.PROCESSED, "")
    assert (rejected.queue, rejected.status) == ("orders", Status.DEAD_LETTERED)


async def test_when_one_rejected_by_hand_is_read_before_it_is_settled_then_it_is_no_replay() -> (
    None
):
    """T6, for whoever settles by hand."""
    gateway = LateGateway()
    tracking = NonceTracking(store=MemoryNonces())
    encryption = Encryption(KeyRing(Key.generate("k")), nonces=tracking)
    app = App(gateway, encryption=encryption, spill=MemorySpill())
    orders = Subscription(queue="orders", request=PlaceOrder, dead_letter_queue="dead")
    dead = Subscription(queue="dead", request=PlaceOrder)
    for subscription in (orders, dead):
        app.subscribe(subscription)

    async with app, asyncio.timeout(_PATIENCE_S):
        for subscription in (orders, dead):
            for spec in subscription.queue_specs():
                await app.admin.ensure(spec, subscription.make_channels)
        await app.post(PlaceOrder(), queue="orders")
        async with app.consumer(orders) as by_hand, app.consumer(dead) as reader:
            [original] = await by_hand.receive()
            await by_hand.open(original)
            rejecting = asyncio.create_task(by_hand.reject(original))
            [copy] = await reader.receive()
            opened = await reader.read(copy)
            gateway.may_settle.set()
            await rejecting

    assert opened == PlaceOrder()


async def refuse_orders(order: PlaceOrder) -> None:
    """Only a dead letter is good enough."""
    context = current_context()
    assert context is not None
    assert context.subscription is not None
    if context.subscription.queue == "orders":
        raise RejectMessage("no stock")
