"""A program that ends when its queues are empty: not before what waits in the outbox for them."""

from __future__ import annotations

from gateways.memory import MemoryGateway
from pump import App, Subscription

from .conftest import Place
from .rig import Order


async def test_when_a_row_waits_for_a_queue_then_the_queue_is_not_empty_yet(place: Place) -> None:
    handled: list[int] = []
    app = App(MemoryGateway(), outbox=place.outbox())

    @app.handler
    async def take(order: Order) -> None:
        handled.append(order.number)

    app.subscribe(Subscription(queue="orders", request=Order, dead_letter_queue="dead"))
    async with app, place.transaction() as transaction:
        await app.post(Order(number=1), transaction=transaction)

    async with app, app.pumping() as dispatcher:
        await dispatcher.wait_until_empty()

    assert handled == [1]
