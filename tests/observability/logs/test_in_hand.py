"""What a line says that is logged inside a handler."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import structlog
from opentelemetry import trace
from opentelemetry.trace import NonRecordingSpan, SpanContext

from pump import App, Command, Event, Message, RejectMessage, Subscription
from pump.observability.in_hand import add_message_in_hand
from pump.observability.otel import OpenTelemetry
from pump.stores.spill import MemorySpill
from pump.testing import Harness
from tests.observability.otel.shop import Spans

from .conftest import SetUp, Written

TRACE_ID, SPAN_ID = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


class Greet(Command):
    name: str


def a_message(**fields: Any) -> Message:
    return Message(body=b'{"name": "Ann"}', id="m1", correlation_id="c1", **fields)


async def handled(app: App, written: Written, message: Message) -> list[dict[str, Any]]:
    """The lines that handlers logged about the message."""
    app.subscribe(Subscription(queue="greetings", request=Greet))
    async with Harness(app) as harness:
        await harness.send(message)
        await harness.run_until_idle()
        assert harness.statuses == ["processed"]
    return [line for line in written.lines if line["logger"] == "mine"]


EXPECTED = {
    "handler": "greet",
    "subscription": "greetings",
    "message_id": "m1",
    "correlation_id": "c1",
    "attempt": 1,
}


def said(line: dict[str, Any]) -> dict[str, Any]:
    return {name: line.get(name) for name in EXPECTED}


async def test_an_async_handlers_lines_name_the_message_in_hand(set_up: SetUp) -> None:
    """R61."""
    written, app = set_up(), App("memory://")

    @app.handler
    async def greet(request: Greet) -> None:
        structlog.get_logger("mine").info("greeting")
        logging.getLogger("mine").info("greeting")

    lines = await handled(app, written, a_message())

    assert [said(line)["message_id"] for line in lines] == ["m1", "m1"]
    assert all(said(line)["handler"].endswith("greet") for line in lines)


async def test_a_blocking_handlers_lines_name_the_message_in_hand_from_its_thread(
    set_up: SetUp,
) -> None:
    """R61."""
    written, app = set_up(), App("memory://")
    threads: list[str] = []

    @app.handler
    def greet(request: Greet) -> None:
        import threading

        threads.append(threading.current_thread().name)
        structlog.get_logger("mine").info("greeting")
        logging.getLogger("mine").info("greeting")

    lines = await handled(app, written, a_message())

    assert threads[0].startswith("pump-handler")
    assert len(lines) == 2
    for line in lines:
        assert line["handler"].endswith("greet")
        assert said(line) == {**EXPECTED, "handler": line["handler"]}


class Placed(Event):
    name: str


async def test_when_an_event_has_several_handlers_then_each_line_names_its_own(
    set_up: SetUp,
) -> None:
    written, app = set_up(), App("memory://")

    @app.handler
    def first(event: Placed) -> None:
        logging.getLogger("mine").info("first")

    @app.handler
    async def second(event: Placed) -> None:
        logging.getLogger("mine").info("second")

    app.subscribe(Subscription(queue="placed", request=Placed))
    async with Harness(app) as harness:
        await harness.send(a_message())
        await harness.run_until_idle()

    lines = [line for line in written.lines if line["logger"] == "mine"]
    assert len(lines) == 2
    assert all(line["handler"].endswith(line["event"]) for line in lines)


async def test_when_the_message_belongs_to_a_trace_then_lines_of_its_handler_do(
    set_up: SetUp,
) -> None:
    """R59."""
    written, app = set_up(), App("memory://")

    @app.handler
    async def greet(request: Greet) -> None:
        logging.getLogger("mine").info("greeting")

    message = a_message(headers={"traceparent": f"00-{TRACE_ID}-{SPAN_ID}-01"})
    [line] = await handled(app, written, message)

    assert (line["trace_id"], line["span_id"]) == (TRACE_ID, SPAN_ID)


@pytest.mark.parametrize("fate", ["processed", "dead-lettered"])
async def test_when_an_app_traces_then_every_line_belongs_to_the_span_that_handled_it(
    fate: str, set_up: SetUp
) -> None:
    """R59, R61: from the message's line one finds its trace."""
    written, spans = set_up(), Spans()
    telemetry = OpenTelemetry(tracer_provider=spans.provider, metrics=False)
    app = App("memory://", telemetry=telemetry, spill=MemorySpill())

    @app.handler
    async def greet(request: Greet) -> None:
        logging.getLogger("mine").info("greeting")
        if fate == "dead-lettered":
            raise RejectMessage("no")

    app.subscribe(Subscription(queue="greetings", request=Greet))
    async with app, app.pumping() as dispatcher:
        await dispatcher.channels_made.wait()
        await app.post(a_message(), queue="greetings")
        await dispatcher.wait_until_empty()

    handling = spans.one("process greetings").context
    assert handling is not None
    lines = [line for line in written.lines if line["event"] in ("greeting", "message.settled")]
    assert [line["event"] for line in lines] == ["greeting", "message.settled"]
    assert [(line["trace_id"], line["span_id"]) for line in lines] == [
        (f"{handling.trace_id:032x}", f"{handling.span_id:016x}")
    ] * 2


def test_when_a_span_is_active_then_a_line_belongs_to_it() -> None:
    """R59: also outside of handlers."""
    context = SpanContext(int(TRACE_ID, 16), int(SPAN_ID, 16), is_remote=False)

    with trace.use_span(NonRecordingSpan(context)):
        line = add_message_in_hand(None, "info", {"event": "working"})

    assert line == {"event": "working", "trace_id": TRACE_ID, "span_id": SPAN_ID}
    assert add_message_in_hand(None, "info", {"event": "idle"}) == {"event": "idle"}


def test_what_a_line_says_by_itself_is_kept() -> None:
    context = SpanContext(int(TRACE_ID, 16), int(SPAN_ID, 16), is_remote=False)

    with trace.use_span(NonRecordingSpan(context)):
        line = add_message_in_hand(None, "info", {"trace_id": "mine"})

    assert line["trace_id"] == "mine"
