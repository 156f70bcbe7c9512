"""App: what is declared, what is refused, and what posting does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from gateways.memory import MemoryGateway
from handlers import Handler
from pump import App, Command, Event, Message, Subscription, current_context
from pump.errors import (
    ConfigurationError,
    ConnectionFailed,
    HandlerNotFound,
    PumpError,
    QueueNotFound,
    TooManyHandlers,
)
from pump.mapping import Mapper
from pump.registry import Registry, request_type_of
from pump.stores.spill import MemorySpill
from pump.testing.builders import a_message
from pump.testing.virtual_clock import EPOCH_S, VirtualClock

from .faulty_gateway import FaultyGateway


class Order(Command):
    n: int = 0


class Shipped(Event):
    n: int = 0


class OrderHandler(Handler[Order]):
    async def handle(self, request: Order) -> None:
        return


class Plain:
    async def handle(self, request: Order) -> None:
        return


async def on_order(request: Order) -> None:
    return


def on_shipped(event: Shipped) -> None:
    return


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def gateway(clock: VirtualClock) -> FaultyGateway:
    return FaultyGateway(clock)


@pytest.fixture
def app(gateway: FaultyGateway, clock: VirtualClock) -> App:
    return App(gateway, clock=clock, spill=MemorySpill())


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


# -- declaring ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("handler", "request_type"),
    [
        (OrderHandler, Order),
        (Plain, Order),
        (Plain(), Order),
        (on_order, Order),
        (on_shipped, Shipped),
    ],
)
def test_when_a_handler_says_what_it_handles_then_it_is_registered_for_that(
    app: App, handler: Any, request_type: type
) -> None:
    assert app.handler(handler) is handler

    [registration] = app.registry.of(request_type)
    assert registration.handler is handler
    assert request_type_of(handler) is request_type


def _unannotated(request):  # type: ignore[no-untyped-def]
    return


def _annotated_with_what_is_no_class(request: Order | None) -> None:
    return


def _annotated_with_a_stranger(request: NoSuchClass) -> None:  # type: ignore[name-defined]  # noqa: F821
    return


@pytest.mark.parametrize(
    "handler",
    [_unannotated, _annotated_with_what_is_no_class, _annotated_with_a_stranger, lambda: None],
)
def test_when_a_handler_does_not_say_what_it_handles_then_the_error_says_how_to(
    app: App, handler: Any
) -> None:
    with pytest.raises(ConfigurationError, match="its request type is not evident"):
        app.handler(handler)


@pytest.mark.parametrize("handler", [Order, 5, "handler", None])
def test_when_something_cannot_handle_then_registering_it_is_refused(
    app: App, handler: Any
) -> None:
    """R56."""
    with pytest.raises(ConfigurationError) as caught:
        app.register(Order, handler)

    assert caught.value.field == "register.handler"


@pytest.mark.parametrize("request_type", ["Order", None, Order(n=1)])
def test_when_the_request_type_is_no_class_then_registering_is_refused(
    app: App, request_type: Any
) -> None:
    """R56."""
    with pytest.raises(ConfigurationError) as caught:
        app.register(request_type, on_order)

    assert caught.value.field == "register.request_type"


def test_when_two_handlers_have_one_name_then_the_registry_tells_them_apart() -> None:
    registry = Registry()

    names = [registry.register(Shipped, on_shipped).name for _ in range(3)]

    assert len(set(names)) == 3
    assert names[1:] == [f"{names[0]}#2", f"{names[0]}#3"]


def test_when_two_subscriptions_have_one_name_then_the_second_is_refused(app: App) -> None:
    app.subscribe(Subscription(queue="orders", request=Order))

    with pytest.raises(ConfigurationError, match="is taken") as caught:
        app.subscribe(Subscription(queue="elsewhere", request=Order, name="orders"))

    assert caught.value.value == "orders"
    assert [each.queue for each in app.subscriptions] == ["orders"]


@pytest.mark.parametrize(
    ("registered", "request_type", "error"),
    [
        ([], Order, HandlerNotFound),
        ([(Order, on_order), (Order, OrderHandler)], Order, TooManyHandlers),
        ([], Shipped, HandlerNotFound),
    ],
)
async def test_when_a_subscription_could_not_be_handled_then_the_app_refuses_to_run(
    app: App, registered: list[tuple[type, Any]], request_type: type, error: type[PumpError]
) -> None:
    for each, handler in registered:
        app.register(each, handler)
    app.subscribe(Subscription(queue="orders", request=request_type))

    with pytest.raises(error):
        app.check()
    async with app:
        with pytest.raises(error):
            app.dispatcher()


def test_when_an_event_has_many_handlers_then_the_check_is_content(app: App) -> None:
    app.register(Shipped, on_shipped)
    app.register(Shipped, on_shipped)
    app.subscribe(Subscription(queue="facts", request=Shipped))

    app.check()


async def test_when_there_is_nothing_to_run_then_the_dispatcher_says_so(app: App) -> None:
    async with app:
        with pytest.raises(ConfigurationError, match=r"app\.subscribe"):
            app.dispatcher()


def test_when_declaring_then_nothing_is_opened_and_no_file_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """STYLE: constructors perform no I/O."""
    monkeypatch.chdir(tmp_path)

    app = App("local://")
    app.register(Order, on_order)
    app.subscribe(Subscription(queue="orders", request=Order))
    app.check()

    assert list(tmp_path.iterdir()) == []
    assert app.gateway_name == "local://"


def test_when_a_gateway_object_is_given_then_its_scheme_names_it(app: App) -> None:
    assert app.gateway_name == "memory://"


def test_when_the_gateway_is_unknown_then_opening_names_it() -> None:
    with pytest.raises(ConfigurationError, match="carrier-pigeon"):
        App("carrier-pigeon://")._built_gateway()


# -- opening ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "use",
    [lambda app: app.processor, lambda app: app.gateway, lambda app: app.dispatcher()],
    ids=["processor", "gateway", "dispatcher"],
)
def test_when_the_app_is_not_open_then_using_it_says_how_to_open_it(
    app: App, use: Callable[[App], object]
) -> None:
    app.subscribe(Subscription(queue="orders", request=Order))
    app.register(Order, on_order)

    with pytest.raises(PumpError, match="async with app"):
        use(app)


async def test_when_the_app_is_open_then_opening_it_again_is_refused(app: App) -> None:
    async with app:
        with pytest.raises(PumpError, match="open already"):
            await app.__aenter__()


async def test_when_the_app_was_closed_then_it_can_be_opened_again(app: App) -> None:
    for _ in range(2):
        async with app:
            assert app.processor is not None
    await app.__aexit__(None, None, None)


async def test_when_the_broker_cannot_be_reached_then_the_app_stays_closed(
    app: App, gateway: FaultyGateway
) -> None:
    """R51, R56: nothing half-built."""
    gateway.fail("open", ConnectionFailed("broker", "away"))
    with pytest.raises(ConnectionFailed):
        async with app:
            pass
    gateway.heal("open")

    async with app:
        assert app.gateway is gateway


def test_when_put_on_another_gateway_then_the_app_itself_stays_as_it_was(
    app: App, gateway: FaultyGateway, clock: VirtualClock
) -> None:
    app.register(Order, on_order)
    app.subscribe(Subscription(queue="orders", request=Order))
    app.route(Shipped, "facts")

    copy = app.on(MemoryGateway(clock))
    copy.subscribe(Subscription(queue="more", request=Order))
    copy.route(Order, "elsewhere")
    copy.observe(print)

    assert [each.name for each in app.subscriptions] == ["orders"]
    assert [each.name for each in copy.subscriptions] == ["orders", "more"]
    assert app._routes[Order] == "orders"
    assert list(app._observers) == []
    assert app._gateway is gateway


def test_when_overridden_then_the_app_itself_has_the_other_gateway_and_concurrency(
    app: App, clock: VirtualClock
) -> None:
    app.subscribe(Subscription(queue="orders", request=Order, concurrency=2))
    app.subscribe(Subscription(queue="facts", request=Shipped, concurrency=3))

    app.override(gateway="memory://other", concurrency={"facts": 7})

    assert app.gateway_name == "memory://other"
    assert [each.concurrency for each in app.subscriptions] == [2, 7]


@pytest.mark.parametrize(
    ("name", "count", "field"),
    [("nobody", 3, "subscription"), ("orders", 0, "Subscription.concurrency")],
)
def test_when_overridden_with_what_cannot_work_then_that_is_refused(
    app: App, name: str, count: int, field: str
) -> None:
    """R56."""
    app.subscribe(Subscription(queue="orders", request=Order))

    with pytest.raises(ConfigurationError) as caught:
        app.override(concurrency={name: count})

    assert caught.value.field == field


async def test_when_the_app_is_open_then_it_is_too_late_to_override(app: App) -> None:
    async with app:
        with pytest.raises(PumpError, match="override it before"):
            app.override(gateway="memory://")


async def test_when_pumping_beside_a_block_then_it_is_drained_at_the_blocks_end(
    app: App, clock: VirtualClock
) -> None:
    handled: list[int] = []

    async def handle(request: Order) -> None:
        handled.append(request.n)

    app.register(Order, handle)
    app.subscribe(Subscription(queue="orders", request=Order))
    async with app:
        async with app.pumping() as dispatcher:
            await app.post(Order(n=1))
            await clock.settle()
            assert handled == [1]

        assert dispatcher.performers[0].state == "stopped"


async def test_when_serving_until_empty_then_it_ends_by_itself_once_everything_is_done(
    app: App, clock: VirtualClock, gateway: FaultyGateway
) -> None:
    async def slow(request: Order) -> None:
        await clock.sleep(100)

    app.register(Order, slow)
    app.subscribe(Subscription(queue="orders", request=Order))
    for subscription in app.subscriptions:
        for spec in subscription.queue_specs():
            await gateway.admin().ensure(spec, subscription.make_channels)
    await gateway.producer("orders").send([a_message(b'{"n":1}', type="Order")])

    serving = asyncio.create_task(app.serve(until_empty=True))
    await clock.advance(99)
    assert not serving.done()
    await clock.advance(60)

    dispatcher = await serving
    assert dispatcher.performers[0].stats.processed == 1


# -- posting ------------------------------------------------------------------------------------


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
