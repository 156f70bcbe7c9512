"""App: what is declared, what is refused, and how it is opened."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gateways.memory import MemoryGateway
from pump import App, Subscription
from pump.errors import (
    AccessDenied,
    ConfigurationError,
    ConnectionFailed,
    HandlerNotFound,
    PumpError,
    TooManyHandlers,
)
from pump.processor import HandlerRegistry, request_type_of
from pump.stores.spill import MemorySpill
from pump.testing.builders import a_message
from pump.testing.virtual_clock import VirtualClock

from .faulty_gateway import FaultyGateway
from .shop import Order, OrderHandler, Plain, Shipped, on_order, on_shipped

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
    registry = HandlerRegistry()

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
        App("carrier-pigeon://").built_gateway()


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


async def test_when_its_parts_are_replaced_then_it_is_as_before_afterwards(
    app: App, gateway: FaultyGateway, clock: VirtualClock
) -> None:
    app.register(Order, on_order)
    app.subscribe(Subscription(queue="orders", request=Order))
    other = MemoryGateway(clock)
    spill = app.spill

    with app.replacing(gateway=other, clock=clock, spill=MemorySpill(), observers=[print]):
        async with app:
            await app.post(Order(1))
            during = app.gateway, list(app._observers)
        assert app.spill is not spill

    assert during == (other, [print])
    assert (app._gateway, app.spill, list(app._observers)) == (gateway, spill, [])
    assert [stats.visible for stats in await other.admin().queues()] == [1]


async def test_when_open_then_its_parts_cannot_be_replaced(app: App, clock: VirtualClock) -> None:
    app.register(Order, on_order)

    async with app:
        with pytest.raises(PumpError, match="open already"):
            app.replacing(gateway="memory://", clock=clock, spill=MemorySpill()).__enter__()


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
        with pytest.raises(PumpError, match="open already"):
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


async def test_when_nobody_may_say_whether_it_is_empty_then_serving_until_empty_ends_with_that(
    app: App, gateway: FaultyGateway, clock: VirtualClock
) -> None:
    """A job that waits for ever would not say why."""
    app.register(Order, OrderHandler)
    app.subscribe(Subscription(queue="orders", request=Order))
    gateway.fail("queues", AccessDenied("orders", "sqs:GetQueueAttributes"))

    serving = asyncio.create_task(app.serve(until_empty=True))
    await clock.advance(60)

    assert serving.done()
    with pytest.raises(AccessDenied):
        await serving
