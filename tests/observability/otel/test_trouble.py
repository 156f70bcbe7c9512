"""Trouble: a tracer, meter or exporter that breaks changes no outcome."""

from __future__ import annotations

import asyncio
import socket
import threading
from typing import Any

import pytest
import structlog.testing
from opentelemetry.metrics import NoOpMeterProvider
from opentelemetry.propagators.textmap import TextMapPropagator
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import NonRecordingSpan, SpanContext

from pump.errors import ConfigurationError, ConnectionFailed
from pump.observability import vocabulary
from pump.observability.otel import OpenTelemetry
from pump.observability.otel.telemetry import run_within
from pump.observability.otel.tracing import Trouble
from pump.subscription import dead_letter
from tests.core.rig import Rig, Work

from .collector import collecting
from .shop import PlaceOrder, Shop, Spans


class Broken(Exception):
    """What a provider's defect raises."""


class BrokenTracerProvider:
    """Its tracer raises."""

    def get_tracer(self, *args: Any, **options: Any) -> Any:
        return self

    def start_span(self, *args: Any, **options: Any) -> Any:
        raise Broken("hunter2")

    def force_flush(self) -> None:
        raise Broken

    start_as_current_span = start_span


class BrokenSpan(NonRecordingSpan):
    """Raises whatever is asked of it but its context."""

    def is_recording(self) -> bool:
        return True

    def set_attribute(self, *args: Any) -> None:
        raise Broken

    set_status = add_event = end = set_attribute  # type: ignore[assignment]


class BrokenSpanProvider(BrokenTracerProvider):
    """Its spans raise."""

    def start_span(self, *args: Any, **options: Any) -> Any:
        return BrokenSpan(SpanContext(1, 2, is_remote=False))


class BrokenPropagator(TextMapPropagator):
    """Raises when it reads and when it writes."""

    def extract(self, *args: Any, **options: Any) -> Any:
        raise Broken

    def inject(self, *args: Any, **options: Any) -> None:
        raise Broken

    @property
    def fields(self) -> set[str]:
        return {"traceparent", "mine"}


class BrokenMeterProvider(NoOpMeterProvider):
    """Its histograms and late counters raise."""

    def get_meter(self, *args: Any, **options: Any) -> Any:
        meter = super().get_meter("any")

        class Meter:
            create_observable_up_down_counter = meter.create_observable_up_down_counter

            def create_observable_counter(self, *args: Any, **options: Any) -> None:
                raise Broken

            def create_histogram(self, *args: Any, **options: Any) -> Any:
                class Histogram:
                    def record(self, *args: Any) -> None:
                        raise Broken

                return Histogram()

        return Meter()


def shut_down() -> OpenTelemetry:
    tracers, meters = TracerProvider(shutdown_on_exit=False), MeterProvider(shutdown_on_exit=False)
    tracers.shutdown()
    meters.shutdown()
    return OpenTelemetry(tracer_provider=tracers, meter_provider=meters)


BROKEN = {
    "tracer": lambda: OpenTelemetry(tracer_provider=BrokenTracerProvider(), metrics=False),  # type: ignore[arg-type]
    "span": lambda: OpenTelemetry(tracer_provider=BrokenSpanProvider(), metrics=False),  # type: ignore[arg-type]
    "propagator": lambda: OpenTelemetry(
        tracer_provider=Spans().provider, propagator=BrokenPropagator(), metrics=False
    ),
    "meter": lambda: OpenTelemetry(traces=False, meter_provider=BrokenMeterProvider()),
}


@pytest.mark.parametrize("what", [*BROKEN, "shut down"])
async def test_when_telemetry_breaks_then_every_message_meets_the_fate_it_would_have_met(
    what: str,
) -> None:
    """R59, R60: handled, deferred, rejected and routed, as without."""

    async def handle(work: Work) -> None:
        if work.n == 2 and rig.attempts[2] == 1:
            raise ValueError
        if work.n == 3:
            raise ValueError

    telemetry = shut_down() if what == "shut down" else BROKEN[what]()
    rig = Rig(handle, failure=dead_letter())
    rig.app.telemetry = telemetry
    async with rig:
        await rig.start()
        await rig.app.post_all([Work(n=1), Work(n=2)], headers={"mine": "x"})
        await rig.send(3)
        rig.gateway.fail("settle", ConnectionFailed("broker", "gone"), times=1)
        rig.gateway.fail("receive", ConnectionFailed("broker", "gone"), times=1)
        await rig.clock.advance(60)
        assert [message.headers["attempts"] for message in await rig.messages("dead")] == ["1"] * 2
        assert await rig.total() == 0

        await rig.finish()

    assert rig.ended == [1]
    assert len(rig.record.settled) == 3


@pytest.mark.parametrize("what", BROKEN)
async def test_when_telemetry_breaks_then_that_is_said_once_a_minute_and_not_once_a_message(
    what: str,
) -> None:
    rig = Rig()
    rig.app.telemetry = BROKEN[what]()
    with structlog.testing.capture_logs() as lines:
        async with rig:
            await rig.start()
            for number in range(5):
                await rig.send(number)
            await rig.clock.settle()
            await rig.clock.advance(61)
            await rig.send(6)
            await rig.clock.settle()
            await rig.finish()

    said = [line for line in lines if line["event"] == "telemetry.failed"]
    assert len(said) == 2
    assert said[0]["error_type"] == "Broken"
    assert "hunter2" not in str(said)


async def test_when_nothing_is_asked_of_it_then_it_says_so() -> None:
    with pytest.raises(ConfigurationError, match="telemetry=None"):
        OpenTelemetry(traces=False, metrics=False)


async def test_when_two_open_apps_share_one_then_the_second_is_refused() -> None:
    """Their counts would be mixed, and the first one's lost."""
    with collecting() as collector:
        telemetry = OpenTelemetry.otlp(endpoint=collector.url, metrics=False)

        async with Shop("memory://", telemetry).app as first:
            with pytest.raises(ConfigurationError, match="one for each app"):
                await Shop("memory://", telemetry).app.__aenter__()
            await first.post(PlaceOrder(), queue="orders")

    # The refusal did not close what the first one uses.
    assert [span.name for span in collector.spans()] == ["send orders"]


async def test_when_the_port_of_prometheus_is_taken_then_nothing_is_left_open() -> None:
    with collecting() as collector:
        telemetry = OpenTelemetry.otlp(endpoint=collector.url, prometheus_port=0)
        app = Shop("memory://", telemetry).app
        async with app:
            assert telemetry.metrics.url is not None
        with socket.create_server(("127.0.0.1", 0)) as taken:
            telemetry.metrics._server._address = taken.getsockname()  # type: ignore[union-attr]

            with pytest.raises(ConfigurationError, match="choose another port"):
                await app.__aenter__()

        # The address is free again, and so is the telemetry.
        async with app:
            assert telemetry.metrics.url is not None


@pytest.mark.parametrize(
    ("variable", "value"),
    [("OTEL_METRIC_EXPORT_INTERVAL", "-5"), ("OTEL_BSP_MAX_QUEUE_SIZE", "-1")],
)
async def test_when_the_sdk_refuses_a_variable_then_opening_says_what_to_do(
    variable: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R56."""
    monkeypatch.setenv(variable, value)
    app = Shop("memory://", OpenTelemetry.otlp(endpoint="http://127.0.0.1:1")).app

    with pytest.raises(ConfigurationError, match=r"correct the OTEL_\* variable"):
        await app.__aenter__()


async def test_when_closing_is_cancelled_then_the_port_of_prometheus_is_free_all_the_same() -> None:
    """Whoever is told twice to stop may be started again at once."""
    with collecting() as collector:
        telemetry = OpenTelemetry.otlp(endpoint=collector.url, metrics=False, prometheus_port=0)
        app = Shop("memory://", telemetry).app
        await app.__aenter__()
        await app.post(PlaceOrder(), queue="orders")
        collector.may_answer.clear()

        closing = asyncio.create_task(telemetry.aclose())
        await asyncio.to_thread(collector.was_asked.wait, 15)
        closing.cancel()
        await asyncio.wait([closing])

        assert closing.cancelled()
        assert telemetry.metrics.url is None
        await app.__aexit__(None, None, None)


async def test_when_a_collector_does_not_answer_in_time_then_that_is_said() -> None:
    """R59: the app closes all the same."""
    gate = threading.Event()
    try:
        with structlog.testing.capture_logs() as lines:
            await run_within(0.01, [gate.wait], Trouble())
    finally:
        gate.set()

    [line] = lines
    assert (line["event"], line["error_type"]) == (vocabulary.TELEMETRY_FAILED, "TimeoutError")
