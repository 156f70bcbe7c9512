"""Failures on spans: the kind and the place, and no text that could quote a secret."""

from __future__ import annotations

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import StatusCode

from pump.errors import ConnectionFailed, Throttled
from pump.observability.otel import OpenTelemetry
from pump.outcome import DeferMessage, InvalidMessage, RejectMessage
from pump.testing.builders import a_message
from tests.core.rig import Behaviour, Rig, Work

from .shop import Spans


def raising(error: BaseException) -> Behaviour:
    async def handle(work: Work) -> None:
        raise error

    return handle


async def processed(rig: Rig, tracing: OpenTelemetry, spans: Spans) -> ReadableSpan:
    """The span of the first delivery of one message."""
    rig.app.telemetry = tracing
    async with rig:
        await rig.start()
        await rig.send(1)
        await rig.clock.settle()
        return spans.named("process orders")[0]


async def test_when_a_handler_fails_then_its_span_says_what_failed_and_where(
    spans: Spans, tracing: OpenTelemetry
) -> None:
    """R59: errors are on the span."""
    span = await processed(Rig(raising(KeyError("user's words"))), tracing, spans)

    assert span.status.status_code is StatusCode.ERROR
    assert span.status.description == "KeyError"
    assert (span.attributes or {})["error.type"] == "KeyError"
    assert (span.attributes or {})["pumphouse.outcome"] == "defer"
    [event] = span.events
    said = dict(event.attributes or {})
    assert event.name == "exception"
    assert said.pop("exception.type") == "KeyError"
    places = str(said.pop("exception.stacktrace")).splitlines()
    assert places[-1].endswith("in handle")
    assert "test_failures.py" in places[-1]
    assert said == {}


async def test_when_the_program_asks_for_texts_then_the_span_has_the_errors_text(
    spans: Spans,
) -> None:
    tracing = OpenTelemetry(tracer_provider=spans.provider, metrics=False, exception_texts=True)

    span = await processed(Rig(raising(OSError("disk full"))), tracing, spans)

    assert (span.events[0].attributes or {})["exception.message"] == "disk full"


async def test_when_a_handler_asks_for_a_delay_then_its_span_has_not_failed(
    spans: Spans, tracing: OpenTelemetry
) -> None:
    span = await processed(Rig(raising(DeferMessage())), tracing, spans)

    assert span.status.is_unset
    assert span.events == ()
    assert (span.attributes or {})["pumphouse.outcome"] == "defer"


async def test_when_a_handler_rejects_its_message_then_the_span_has_failed_with_the_reason(
    spans: Spans, tracing: OpenTelemetry
) -> None:
    for signal, reason in (
        (RejectMessage("no"), "DeliveryError"),
        (InvalidMessage("what"), "Unacceptable"),
    ):
        own = Spans()
        telemetry = OpenTelemetry(tracer_provider=own.provider, metrics=False)

        span = await processed(Rig(raising(signal)), telemetry, own)

        assert span.status.status_code is StatusCode.ERROR
        assert (span.attributes or {})["pumphouse.outcome"] == "reject"
        assert (span.attributes or {})["pumphouse.rejection.reason"] == reason
        assert (span.attributes or {})["error.type"] == type(signal).__name__


async def test_when_a_message_cannot_be_decoded_then_its_span_has_failed(
    spans: Spans, tracing: OpenTelemetry
) -> None:
    rig = Rig()
    rig.app.telemetry = tracing
    async with rig:
        await rig.start()
        await rig.send_raw(a_message("no JSON", type="Work"))
        await rig.clock.settle()

    assert (spans.one("process orders").attributes or {})["error.type"] == "MappingError"


async def test_when_a_group_of_one_is_raised_then_its_member_is_named(
    spans: Spans, tracing: OpenTelemetry
) -> None:
    group = ExceptionGroup("several", [ValueError("x")])

    span = await processed(Rig(raising(group)), tracing, spans)

    assert (span.attributes or {})["error.type"] == "ValueError"
    assert (span.events[0].attributes or {})["exception.type"] == "ExceptionGroup"


async def test_when_calls_to_the_broker_fail_then_their_spans_do(
    spans: Spans, tracing: OpenTelemetry
) -> None:
    """R59: send, receive and settle."""
    rig = Rig()
    rig.app.telemetry = tracing
    async with rig:
        rig.gateway.fail("send", Throttled("orders"), times=1)
        with pytest.raises(Throttled):
            await rig.send(1)
        await rig.send(2)
        rig.gateway.fail("receive", ConnectionFailed("broker", "gone"), times=1)
        rig.gateway.fail("settle", ConnectionFailed("broker", "gone"), times=1)
        await rig.start()
        await rig.clock.advance(5)

        await rig.finish()

    failed = {
        each.name: (each.attributes or {})["error.type"]
        for each in spans.all()
        if each.status.status_code is StatusCode.ERROR
    }
    assert failed == {
        "send orders": "Throttled",
        "receive orders": "ConnectionFailed",
        "settle orders": "ConnectionFailed",
    }
    assert rig.ended == [2]
