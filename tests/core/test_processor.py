"""CommandProcessor: send to one, publish to all, post elsewhere."""

from __future__ import annotations

import asyncio
import threading
from contextvars import ContextVar
from typing import Any

import pytest

from pump import Command, Event
from pump.clock import yield_to_loop
from pump.context import Context, current_context
from pump.errors import ConfigurationError, HandlerNotFound, TooManyHandlers
from pump.outcome import RejectMessage
from pump.pipeline import HandlerFactory, call_constructor
from pump.processor import CommandProcessor, HandlerRegistry


class Order(Command):
    n: int


class Shipped(Event):
    n: int


def processor_of(
    *handlers: tuple[type, Any], factory: HandlerFactory = call_constructor
) -> CommandProcessor:
    registry = HandlerRegistry()
    for request_type, handler in handlers:
        registry.register(request_type, handler)
    return CommandProcessor(registry, factory=factory)


class AsyncHandler:
    async def handle(self, order: Order) -> str:
        await yield_to_loop()
        return f"async {order.n}"


class BlockingHandler:
    def handle(self, order: Order) -> str:
        return f"blocking {order.n} in {threading.current_thread() is threading.main_thread()}"


class CallableHandler:
    async def __call__(self, order: Order) -> str:
        return f"called {order.n}"


async def async_function(order: Order) -> str:
    return f"async function {order.n}"


def blocking_function(order: Order) -> str:
    return f"blocking function {order.n} in {threading.current_thread() is threading.main_thread()}"


@pytest.mark.parametrize(
    ("handler", "result"),
    [
        (AsyncHandler, "async 7"),
        (AsyncHandler(), "async 7"),
        (BlockingHandler, "blocking 7 in False"),
        (BlockingHandler(), "blocking 7 in False"),
        (async_function, "async function 7"),
        (blocking_function, "blocking function 7 in False"),
        (CallableHandler(), "called 7"),
    ],
)
async def test_when_a_request_is_sent_then_its_one_handler_answers(
    handler: Any, result: str
) -> None:
    assert await processor_of((Order, handler)).send(Order(n=7)) == result


async def test_when_nobody_handles_a_request_then_sending_it_says_what_to_do() -> None:
    with pytest.raises(HandlerNotFound, match="no handler is registered for Order") as caught:
        await processor_of().send(Order(n=1))

    assert "app.register(Order, YourHandler)" in str(caught.value)


async def test_when_two_handle_a_request_then_sending_it_names_both() -> None:
    processor = processor_of((Order, AsyncHandler), (Order, async_function))

    with pytest.raises(TooManyHandlers) as caught:
        await processor.send(Order(n=1))

    assert [name.rpartition(".")[2] for name in caught.value.handlers] == [
        "AsyncHandler",
        "async_function",
    ]


async def test_when_a_handler_raises_then_send_raises_just_that() -> None:
    async def fail(order: Order) -> None:
        raise RejectMessage("no")

    with pytest.raises(RejectMessage, match="no"):
        await processor_of((Order, fail)).send(Order(n=1))


async def test_when_an_event_is_published_then_all_its_handlers_run_at_once() -> None:
    met = asyncio.Barrier(3)

    async def wait_for_the_others(event: Shipped) -> None:
        await met.wait()

    processor = processor_of(*[(Shipped, wait_for_the_others)] * 3)

    async with asyncio.timeout(5):
        await processor.publish(Shipped(n=1))


async def test_when_nobody_cares_about_an_event_then_publishing_it_is_no_error() -> None:
    await processor_of().publish(Shipped(n=1))


async def test_when_handlers_of_an_event_fail_then_all_ran_and_the_failures_come_together() -> None:
    ended: list[str] = []

    async def fail(event: Shipped) -> None:
        raise ValueError("first")

    async def succeed(event: Shipped) -> None:
        await yield_to_loop()
        ended.append("slow")

    def fail_blocking(event: Shipped) -> None:
        raise RejectMessage("second")

    processor = processor_of((Shipped, fail), (Shipped, succeed), (Shipped, fail_blocking))

    with pytest.raises(ExceptionGroup, match="2 of 3 handlers of Shipped") as caught:
        await processor.publish(Shipped(n=1))

    assert ended == ["slow"]
    assert [type(each) for each in caught.value.exceptions] == [ValueError, RejectMessage]


async def test_when_publishing_is_cancelled_then_the_handlers_are_too() -> None:
    """Law 6."""
    cancelled: list[int] = []

    async def wait(event: Shipped) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(event.n)
            raise

    publishing = asyncio.create_task(
        processor_of((Shipped, wait), (Shipped, wait)).publish(Shipped(n=1))
    )
    for _ in range(5):
        await yield_to_loop()
    publishing.cancel()
    await asyncio.wait([publishing])

    assert publishing.cancelled()
    assert cancelled == [1, 1]


async def test_when_there_is_no_gateway_then_posting_says_what_is_missing() -> None:
    with pytest.raises(ConfigurationError, match=r"post\(\) needs a gateway"):
        await processor_of().post(Order(n=1))


async def test_when_a_handler_is_a_class_then_the_factory_makes_one_for_each_request() -> None:
    made: list[Any] = []

    class NeedsAService:
        def __init__(self, service: str) -> None:
            self.service = service

        async def handle(self, order: Order) -> str:
            return self.service

    def container(handler_type: type) -> Any:
        made.append(handler_type("the service"))
        return made[-1]

    processor = processor_of((Order, NeedsAService), factory=container)

    answers = [await processor.send(Order(n=n)) for n in range(2)]

    assert answers == ["the service", "the service"]
    assert len(made) == 2
    assert made[0] is not made[1]


async def test_when_the_factory_fails_then_the_request_fails_with_its_error() -> None:
    def broken(handler_type: type) -> Any:
        raise LookupError("no such service")

    with pytest.raises(LookupError, match="no such service"):
        await processor_of((Order, AsyncHandler), factory=broken).send(Order(n=1))


@pytest.mark.parametrize("blocking", [False, True])
async def test_when_a_handler_runs_then_it_finds_its_own_context(blocking: bool) -> None:
    found: list[Context | None] = []

    async def inner(order: Order) -> None:
        found.append(current_context())

    def inner_blocking(order: Order) -> None:
        found.append(current_context())

    processor = processor_of((Order, inner_blocking if blocking else inner))
    await processor.send(Order(n=1))

    [context] = found
    assert context is not None
    assert context.processor is processor
    assert context.handler.endswith("inner_blocking" if blocking else "inner")
    assert (context.delivery, context.message, context.attempt) == (None, None, 1)
    assert current_context() is None


async def test_when_a_handler_sends_a_request_then_it_finds_its_own_context_afterwards() -> None:
    names: list[str] = []

    def note() -> None:
        context = current_context()
        names.append("none" if context is None else context.handler.rpartition(".")[2])

    async def outer(order: Order) -> None:
        note()
        await processor.send(Shipped(n=1))
        note()

    async def inner(event: Shipped) -> None:
        note()

    processor = processor_of((Order, outer), (Shipped, inner))
    await processor.send(Order(n=1))

    assert names == ["outer", "inner", "outer"]


async def test_when_a_blocking_handler_runs_then_it_sees_the_callers_context_variables() -> None:
    variable: ContextVar[str] = ContextVar("variable")
    seen: list[str] = []

    def blocking(order: Order) -> None:
        seen.append(variable.get("unset"))

    variable.set("the caller's")
    await processor_of((Order, blocking)).send(Order(n=1))

    assert seen == ["the caller's"]


async def test_when_a_handler_is_registered_later_then_it_is_found() -> None:
    registry = HandlerRegistry()
    registry.register(Shipped, lambda event: ran.append("first"))
    processor = CommandProcessor(registry)
    ran: list[str] = []
    await processor.publish(Shipped(n=1))

    registry.register(Shipped, lambda event: ran.append("second"))
    await processor.publish(Shipped(n=2))

    assert sorted(ran) == ["first", "first", "second"]
