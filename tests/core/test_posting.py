"""Posting: which queue a request goes to, and what travels with it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest
from hypothesis import given, settings, strategies as st

from gateways.memory import MemoryGateway
from pump import App, Message, Subscription, current_context
from pump.errors import (
    ConfigurationError,
    QueueNotFound,
)
from pump.mapping import Mapper
from pump.stores.spill import MemorySpill
from pump.testing.builders import a_message
from pump.testing.virtual_clock import EPOCH_S, VirtualClock

from .faulty_gateway import FaultyGateway
from .shop import Order, OrderHandler, Shipped, on_shipped


@pytest.fixture
async def open_app(app: App) -> AsyncIterator[App]:
    """An app with queues `orders` and `others` to post to."""
    app.register(Order, OrderHandler)
    app.subscribe(Subscription(queue="orders", request=Order))
    app.subscribe(Subscription(queue="others", request=dict, name="others"))
    async with app:
        for subscription in app.subscriptions:
            async with app.consumer(subscription):
                pass
        yield app


async def sent(app: App, queue: str = "orders") -> list[Message]:
    return list(await app.gateway.admin().peek(queue, max_count=100))


async def test_when_a_request_is_posted_then_it_goes_to_its_subscriptions_queue(
    open_app: App,
) -> None:
    """R1."""
    id_ = await open_app.post(Order(n=3), headers={"tenant": "t"}, reply_to="answers")

    [message] = await sent(open_app)
    assert (message.id, message.type, message.body) == (id_, "Order", b'{"n":3}')
    assert (message.created_at_s, message.reply_to) == (EPOCH_S, "answers")
    assert message.headers == {"tenant": "t"}
    assert message.correlation_id is None


async def test_when_two_subscriptions_take_a_request_then_it_is_posted_to_the_first(
    app: App,
) -> None:
    app.subscribe(Subscription(queue="first", request=Order))
    app.subscribe(Subscription(queue="second", request=Order))

    assert app._routes == {Order: "first"}


async def test_when_a_route_is_declared_then_it_goes_before_the_subscriptions_queue(
    open_app: App,
) -> None:
    open_app.route(Order, "others")

    await open_app.post(Order(n=1))

    assert len(await sent(open_app, "others")) == 1
    assert await sent(open_app) == []


async def test_when_the_post_names_a_queue_then_that_goes_before_everything(
    open_app: App,
) -> None:
    await open_app.post(Order(n=1), queue="others")

    assert len(await sent(open_app, "others")) == 1


async def test_when_a_request_has_no_route_then_posting_says_how_to_give_it_one(
    open_app: App, gateway: FaultyGateway
) -> None:
    before = gateway.record.calls["send"]

    with pytest.raises(ConfigurationError, match=r"app\.route\(Shipped, queue\)"):
        await open_app.post_all([Order(n=1), Shipped(n=1)])

    assert gateway.record.calls["send"] == before, "nothing is sent when part has no way to go"


async def test_when_the_queue_does_not_exist_then_posting_names_it(open_app: App) -> None:
    """R2."""
    with pytest.raises(QueueNotFound, match="nowhere"):
        await open_app.post(Order(n=1), queue="nowhere")


async def test_when_an_unknown_option_is_given_then_python_says_so(open_app: App) -> None:
    with pytest.raises(TypeError, match="prioritty"):
        await open_app.post(Order(n=1), prioritty=5)


async def test_when_many_are_posted_then_each_queue_is_sent_to_once(
    open_app: App, gateway: FaultyGateway
) -> None:
    """R58."""
    open_app.route(Shipped, "others")
    requests = [Order(n=1), Shipped(n=2), Order(n=3), Shipped(n=4)]

    ids = await open_app.post_all(requests)

    assert gateway.record.calls["send"] == 2
    orders, others = await sent(open_app), await sent(open_app, "others")
    assert [ids[0], ids[2]] == [message.id for message in orders]
    assert [ids[1], ids[3]] == [message.id for message in others]


async def test_when_a_ready_made_message_is_posted_then_it_travels_as_it_is(
    open_app: App,
) -> None:
    message = a_message(b"raw", id="m-1", type="Anything", headers={"a": "b"})

    assert await open_app.post(message, queue="others") == "m-1"

    assert await sent(open_app, "others") == [message]


async def test_when_a_delay_is_asked_for_then_the_message_arrives_no_earlier(
    open_app: App, clock: VirtualClock
) -> None:
    await open_app.post(Order(n=1), delay=timedelta(seconds=60))
    assert await sent(open_app) == []

    await clock.advance(60)

    assert len(await sent(open_app)) == 1


@pytest.mark.parametrize(
    ("incoming", "option", "expected"),
    [
        ("the conversation", None, "the conversation"),
        (None, None, "the message"),
        ("the conversation", "my own", "my own"),
    ],
)
async def test_when_a_handler_posts_then_the_correlation_id_is_inherited(
    app: App, clock: VirtualClock, incoming: str | None, option: str | None, expected: str
) -> None:
    """R28: a conversation keeps its id from message to message."""

    async def post_on(request: Order) -> None:
        context = current_context()
        assert context is not None
        assert context.processor is app.processor
        await app.post(Shipped(n=1), queue="facts", correlation_id=option)

    app.register(Order, post_on)
    subscription = app.subscribe(Subscription(queue="orders", request=Order))
    async with app:
        async with app.consumer(Subscription(queue="facts", request=Shipped)):
            pass
        dispatcher = app.dispatcher()
        running = asyncio.create_task(dispatcher.run())
        await clock.settle()
        await app.post(
            a_message(b'{"n":1}', id="the message", type="Order", correlation_id=incoming),
            queue=subscription.queue,
        )
        await clock.settle()

        [message] = await sent(app, "facts")
        assert message.correlation_id == expected
        dispatcher.drain()
        await running


async def test_when_the_app_has_its_own_mapper_then_it_knows_the_registered_types_too(
    gateway: FaultyGateway, clock: VirtualClock
) -> None:
    app = App(gateway, clock=clock, mapper=Mapper(names={"order.v1": Order}), spill=MemorySpill())
    app.register(Shipped, on_shipped)
    app.route(Order, "orders")

    mapper = app._built_mapper()

    assert set(mapper.types) == {Shipped, Order}
    assert mapper.encode(Order(n=1)).type == "order.v1"


@given(st.lists(st.integers(), max_size=20))
@settings(max_examples=20)
def test_when_requests_are_posted_then_their_ids_are_unique_and_in_order(
    numbers: list[int],
) -> None:
    """R1."""

    async def scenario() -> None:
        clock = VirtualClock()
        app = App(MemoryGateway(clock), clock=clock, spill=MemorySpill())
        app.subscribe(Subscription(queue="orders", request=Order))
        async with app, app.consumer(app.subscriptions[0]) as consumer:
            ids = await app.post_all([Order(n=n) for n in numbers])
            received = await consumer.receive(100, wait=timedelta(0))
        assert all(ids)
        assert [delivery.message.id for delivery in received] == list(ids)
        assert len(set(ids)) == len(numbers)

    asyncio.run(scenario())


async def test_when_a_queue_redrives_then_sending_first_makes_its_dead_letter_queue_too(
    app: App, gateway: FaultyGateway
) -> None:
    """R22: a broker may refuse a queue that would move messages to one that does not exist."""
    app.subscribe(
        Subscription(queue="orders", request=Order, dead_letter_queue="dead", max_receive_count=2)
    )

    async with app:
        await app.post(Order(n=1))

    assert gateway.record.calls["ensure"] == 2


async def test_when_the_queues_name_has_half_a_surrogate_pair_then_that_is_said(
    open_app: App,
) -> None:
    with pytest.raises(ConfigurationError, match="surrogate"):
        await open_app.post(a_message(), queue="orders\ud800")
