"""Lambda functions: events are counted and traced, and nothing waits for an unfrozen process."""

from __future__ import annotations

from typing import Any

from pump.observability.metrics import Metrics
from pump.observability.otel import OpenTelemetry
from tests.core.event_function import Function, failing
from tests.core.pushing_gateway import a_record
from tests.core.rig import Gate

from .shop import Spans


async def test_when_an_event_is_handled_then_its_messages_are_counted() -> None:
    """R60: received, completed, retried; nothing was polled, so no poll is measured."""
    metrics = Metrics()
    function = Function(failing(2))
    function.rig.app.telemetry = metrics
    async with function.opened():
        await function.invoke(a_record(1), a_record(2), a_record(3))

        counters = function.rig.app.counters
        assert counters.value("queue_messages_received", queue="orders") == 3
        assert counters.value("pump_messages_completed", queue="orders") == 2
        assert counters.value("pump_messages_retried", queue="orders") == 1
        counts = {
            dict(each.labels)["messaging.operation.name"]: each.count
            for each in metrics.durations()
            if "error.type" not in dict(each.labels)
        }
        assert counts == {"receive": 0, "process": 2, "settle": 1}


async def test_when_an_event_is_being_handled_then_its_messages_are_in_flight() -> None:
    metrics, gate = Metrics(), Gate()
    function = Function(gate)
    function.rig.app.telemetry = metrics
    key = ("pump_messages_in_flight", (("queue", "orders"),))
    async with function.opened():
        _, running = function.start(a_record(1), a_record(2))
        await function.clock.settle()
        assert metrics.gauges()[key] == 2
        gate.open()
        await running
        assert metrics.gauges()[key] == 0


async def test_when_an_event_is_answered_then_its_spans_are_sent_before_that(
    spans: Spans, tracing: OpenTelemetry
) -> None:
    """R59: process and settle spans, no receive; and the process may be frozen afterwards."""
    flushed: list[list[str]] = []
    provider: Any = spans.provider
    provider.force_flush = lambda: flushed.append([each.name for each in spans.all()])
    function = Function()
    function.rig.app.telemetry = tracing
    async with function.opened():
        await function.consumer.handle(function.consumer.read({"Records": [a_record(1)]}))
        assert flushed == [["process orders", "settle orders"]]
