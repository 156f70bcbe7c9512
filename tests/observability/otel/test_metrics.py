"""Metrics: every name that the requirements give, with the right value after all fates."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import (
    HistogramDataPoint,
    InMemoryMetricReader,
    NumberDataPoint,
    Sum,
)

from pump.errors import ConnectionFailed, SendFailed, Throttled
from pump.observability.metrics import Metrics
from pump.observability.metrics_catalogue import BOUNDS_S, Histogram
from pump.observability.otel import OpenTelemetry
from pump.observability.telemetry import Counters
from pump.outcome import InvalidMessage, RejectMessage
from pump.testing.builders import a_delivery, a_message, a_subscription
from pump.testing.virtual_clock import VirtualClock
from tests.core.rig import Gate, Rig, Work


class Read:
    """The SDK's metrics, read from a provider of the test's own."""

    def __init__(self) -> None:
        self._reader = InMemoryMetricReader()
        self.provider = MeterProvider([self._reader], shutdown_on_exit=False)

    def points(self, name: str) -> list[Any]:
        data = self._reader.get_metrics_data()
        return [
            point
            for resource in (data.resource_metrics if data else ())
            for scope in resource.scope_metrics
            for metric in scope.metrics
            if metric.name == name
            for point in metric.data.data_points
        ]

    def values(self, name: str, *labels: str) -> dict[Any, int]:
        """Value by the values of these labels, all that there are when none is named."""
        found: dict[Any, int] = {}
        for point in self.points(name):
            assert isinstance(point, NumberDataPoint)
            key = tuple((point.attributes or {})[label] for label in labels)
            found[key if len(labels) > 1 else (key[0] if key else "")] = int(point.value)
        return found


async def every_fate(rig: Rig) -> None:
    """One message each that is completed, retried and completed, rejected, unacceptable, lost,
    and spilled.
    """

    async def handle(work: Work) -> None:
        attempt = rig.attempts[work.n]
        if work.n == 2 and attempt == 1:
            raise ValueError("try again")
        if work.n == 3:
            raise RejectMessage("no")
        if work.n == 4:
            raise InvalidMessage("what")
        if work.n == 5 and attempt == 1:
            await asyncio.Event().wait()
        if work.n == 6:
            rig.gateway.fail("send", ConnectionFailed("dead", "gone"), times=2)
            raise RejectMessage("to a queue that is away")
        await rig.clock.sleep(0.02)

    rig.behaviour = handle
    await rig.start()
    await rig.send(1, 2, 3, 4)
    await rig.clock.advance(5)
    await rig.send(5)
    await rig.clock.advance(45)
    await rig.send(6)
    await rig.clock.advance(1)


@pytest.fixture
def rig() -> Rig:
    return Rig(renew=False, invalid_queue="invalid", concurrency=2)


async def test_when_messages_met_every_fate_then_the_sdk_reads_each_count(rig: Rig) -> None:
    """R60: sent, received, completed, retried, rejected by reason, lost, spilled, errors."""
    read = Read()
    rig.app.telemetry = OpenTelemetry(traces=False, meter_provider=read.provider)
    async with rig:
        await every_fate(rig)

        assert read.values("queue_messages_sent", "queue") == {"orders": 6}
        assert read.values("queue_messages_received", "queue") == {"orders": 8}
        assert read.values("pump_messages_completed", "queue") == {"orders": 3}
        assert read.values("pump_messages_retried", "queue") == {"orders": 1}
        assert read.values("pump_messages_rejected", "reason") == {
            "DeliveryError": 1,
            "Unacceptable": 1,
        }
        assert read.values("pump_messages_spilled", "queue") == {"orders": 1}
        assert read.values("pump_leases_lost", "queue") == {"orders": 1}
        assert read.values("pump_messages_in_flight", "queue") == {"orders": 0}
        assert read.values("pump_errors", "operation", "error_type") == {
            ("process", "ValueError"): 1,
            ("process", "RejectMessage"): 2,
            ("process", "InvalidMessage"): 1,
            ("process", "cancelled"): 1,
            ("route", "ConnectionFailed"): 1,
        }
        assert read.values("pump_spill_messages") == {"": 0}
        await rig.clock.advance(16)
        # The sweeper came by; the queue was away once more.
        assert read.values("pump_spill_messages") == {"": 1}
        await rig.clock.advance(120)
        assert read.values("pump_spill_messages") == {"": 0}
        assert len(await rig.messages("dead")) == 2
        assert read.values("queue_messages_sent", "queue") == {"orders": 6}


async def test_when_handlers_and_calls_took_a_while_then_the_histograms_say_how_long(
    rig: Rig,
) -> None:
    """R60: latency histograms, by the names and buckets of the conventions."""
    read = Read()
    rig.app.telemetry = OpenTelemetry(traces=False, meter_provider=read.provider)
    async with rig:
        await every_fate(rig)

        by_error = {
            (point.attributes or {}).get("error.type", ""): point
            for point in read.points("messaging.process.duration")
        }
    well = by_error[""]
    assert isinstance(well, HistogramDataPoint)
    assert dict(well.attributes or {}) == {
        "messaging.system": "pumphouse_memory",
        "messaging.operation.name": "process",
        "messaging.destination.name": "orders",
    }
    assert well.count == 3
    assert well.sum == pytest.approx(0.06)
    assert tuple(well.explicit_bounds) == BOUNDS_S
    assert well.bucket_counts[BOUNDS_S.index(0.025)] == 3
    assert by_error["cancelled"].sum == pytest.approx(30)
    operations = {
        (point.attributes or {})["messaging.operation.name"]: point.count
        for point in read.points("messaging.client.operation.duration")
        if (point.attributes or {})["messaging.destination.name"] == "orders"
    }
    assert operations["send"] == 6
    assert operations["receive"] == rig.record.calls["receive"] - 1  # One is still under way.
    assert operations["settle"] == rig.record.calls["settle"]


async def test_when_a_poll_waits_then_its_latency_is_in_the_histogram(rig: Rig) -> None:
    """R60: poll latency, of empty polls too."""
    metrics = Metrics()
    rig.app.telemetry = metrics
    async with rig:
        await rig.start()
        await rig.clock.advance(rig.subscription.wait.total_seconds())

        [polls] = [
            each
            for each in metrics.durations()
            if ("messaging.operation.name", "receive") in each.labels
        ]
        assert polls.count == 1
        assert polls.sum_s == pytest.approx(rig.subscription.wait.total_seconds())


async def test_when_messages_are_in_hand_then_the_gauge_says_how_many() -> None:
    """R60: in flight."""
    gate, metrics = Gate(), Metrics()
    rig = Rig(gate, concurrency=2, prefetch=1)
    rig.app.telemetry = metrics
    key = ("pump_messages_in_flight", (("queue", "orders"),))
    async with rig:
        await rig.start()
        await rig.send(1, 2, 3, 4, 5)
        await rig.clock.settle()
        assert metrics.gauges()[key] == 3
        gate.open()
        await rig.clock.settle()
        assert metrics.gauges()[key] == 0


async def test_when_leases_are_extended_then_they_are_counted() -> None:
    """R60: lease extensions, and extensions that failed."""
    gate, metrics = Gate(), Metrics()
    rig = Rig(gate, concurrency=2)
    rig.app.telemetry = metrics
    async with rig:
        await rig.start()
        await rig.send(1, 2)
        await rig.clock.advance(70)
        extended = len(rig.record.extended)
        assert extended > 2
        assert rig.app.counters.value("pump_lease_extensions", queue="orders") == extended

        rig.gateway.fail("extend", Throttled("orders"), times=1)
        await rig.clock.advance(20)
        errors = rig.app.counters.value("pump_errors", operation="extend", error_type="Throttled")
        assert errors == 1
        gate.open()
        await rig.clock.settle()


async def test_when_messages_are_handed_back_untried_then_they_count_as_released() -> None:
    gate, metrics = Gate(), Metrics()
    rig = Rig(gate, concurrency=1, prefetch=2)
    rig.app.telemetry = metrics
    async with rig:
        await rig.start()
        await rig.send(1, 2, 3)
        await rig.clock.settle()
        await rig.drain()
        gate.open()
        await rig.clock.settle()

        assert rig.app.counters.value("pump_messages_released", queue="orders") == 2
        assert rig.app.counters.value("pump_messages_completed", queue="orders") == 1


async def started(metrics: Metrics, *, counts_messages: bool = True) -> Counters:
    counters = Counters()
    await metrics.start(counters, "sqs", clock=VirtualClock(), counts_messages=counts_messages)
    return counters


async def test_when_some_messages_of_a_send_are_refused_then_the_others_were_sent() -> None:
    """R60."""
    metrics = Metrics()
    counters = await started(metrics)
    messages = [a_message(id="1"), a_message(id="2"), a_message(id="3")]

    with pytest.raises(SendFailed), metrics.sending("orders", messages):
        raise SendFailed("orders", (("2", Throttled("orders")),))
    with pytest.raises(Throttled), metrics.sending("orders", messages):
        raise Throttled("orders")

    assert counters.value("queue_messages_sent") == 2
    assert counters.value("pump_errors", operation="send", error_type="SendFailed") == 1


async def test_when_encryption_counts_messages_then_nothing_is_counted_twice() -> None:
    """R71, R74: the label `encrypted` is the encryption's to know."""
    metrics = Metrics()
    counters = await started(metrics, counts_messages=False)

    with metrics.sending("orders", [a_message()]):
        pass
    metrics.received(a_subscription("orders"), [a_delivery()], waited_s=0.0)

    assert counters.value("queue_messages_sent") == 0
    assert counters.value("queue_messages_received") == 0
    assert "queue_messages_sent" not in metrics.prometheus_text().decode()


async def test_when_a_copy_of_a_rejected_message_is_sent_then_it_is_not_counted_as_sent() -> None:
    metrics = Metrics()
    counters = await started(metrics)

    with metrics.sending("dead", [a_message()], is_copy=True):
        pass
    with pytest.raises(Throttled), metrics.sending("dead", [a_message()], is_copy=True):
        raise Throttled("dead")

    assert counters.value("queue_messages_sent") == 0
    # Who routes it tells of the failure, once.
    assert counters.value("pump_errors") == 0


@pytest.mark.parametrize(
    ("took_s", "bucket"), [(0.0, 0), (0.005, 0), (0.0051, 1), (10.0, 13), (10.1, 14), (3600.0, 14)]
)
def test_when_a_duration_is_recorded_then_it_is_in_the_bucket_whose_bound_it_does_not_exceed(
    took_s: float, bucket: int
) -> None:
    histogram = Histogram()

    histogram.record(took_s)

    assert [index for index, count in enumerate(histogram.counts) if count] == [bucket]
    assert histogram.sum_s == took_s


async def test_when_something_new_is_counted_while_it_runs_then_it_is_exported_too() -> None:
    read = Read()
    rig = Rig()
    rig.app.telemetry = OpenTelemetry(traces=False, meter_provider=read.provider)
    async with rig:
        rig.app.counters.add("shop_gifts_wrapped", 2, colour="red")

        assert read.values("shop_gifts_wrapped", "colour") == {"red": 2}


async def test_when_an_app_is_opened_again_then_its_counts_go_on() -> None:
    read = Read()
    rig = Rig()
    rig.app.telemetry = OpenTelemetry(traces=False, meter_provider=read.provider)
    async with rig:
        await rig.send(1)
    async with rig:
        await rig.send(2)

    assert read.values("queue_messages_sent", "queue") == {"orders": 2}
    [sends] = [
        point
        for point in read.points("messaging.client.operation.duration")
        if (point.attributes or {})["messaging.operation.name"] == "send"
    ]
    assert sends.count == 2


def test_counters_are_monotonic_and_levels_are_not() -> None:
    """What the SDK is told to make of each: a backend computes rates of the one kind only."""
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader], shutdown_on_exit=False)

    async def run() -> None:
        rig = Rig()
        rig.app.telemetry = OpenTelemetry(traces=False, meter_provider=provider)
        async with rig:
            await rig.start()
            await rig.send(1)
            await rig.clock.advance(20)

    asyncio.run(run())

    kinds = dict(_monotonic(reader))
    assert kinds["queue_messages_sent"] is True
    assert kinds["pump_spill_messages"] is False


def _monotonic(reader: InMemoryMetricReader) -> Iterable[tuple[str, bool]]:
    data = reader.get_metrics_data()
    for resource in data.resource_metrics if data else ():
        for scope in resource.scope_metrics:
            for metric in scope.metrics:
                if isinstance(metric.data, Sum):
                    yield metric.name, metric.data.is_monotonic
