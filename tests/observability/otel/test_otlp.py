"""OTLP over real HTTP, to a stand-in that decodes what a collector would."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pump.observability.metrics_catalogue import BOUNDS_S
from pump.observability.otel import OpenTelemetry
from tests.core.rig import Rig

from .collector import Collector, attributes_of, collecting
from .shop import PlaceOrder, Shop


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    """A collector where the environment says it is, and time to reach it on a busy machine."""
    for limit in ("_FLUSH_S", "_CLOSE_S"):
        monkeypatch.setattr(f"pump.observability.otel.telemetry.{limit}", 15.0)
    with collecting() as found:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", found.url)
        yield found


async def test_when_exported_over_http_then_the_collector_sees_one_connected_trace(
    collector: Collector,
) -> None:
    """R59: ids and parents survive the wire."""
    shop = Shop("memory://", OpenTelemetry.otlp(service_name="shop"))

    async with shop.open() as dispatcher:
        await shop.app.post(PlaceOrder(order=1))
        await dispatcher.wait_until_empty()

    by_name = {span.name: span for span in collector.spans()}
    assert len({span.trace_id for span in by_name.values()}) == 1
    assert by_name["send orders"].parent_span_id == b""
    for child, parent in (
        ("receive orders", "send orders"),
        ("process orders", "send orders"),
        ("settle orders", "send orders"),
        ("send parcels", "process orders"),
        ("receive parcels", "send parcels"),
        ("process parcels", "send parcels"),
        ("settle parcels", "send parcels"),
    ):
        assert by_name[child].parent_span_id == by_name[parent].span_id
    [link] = by_name["settle parcels"].links
    assert link.span_id == by_name["send parcels"].span_id
    assert attributes_of(by_name["send orders"])["messaging.system"] == "pumphouse_memory"
    assert collector.services() == {"shop"}


async def test_when_the_environment_names_the_service_then_that_is_its_name(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_SERVICE_NAME", "of the environment")
    shop = Shop("memory://", OpenTelemetry.otlp(service_name="of the program"))

    async with shop.app:
        await shop.app.post(PlaceOrder(), queue="orders")

    assert collector.services() == {"of the environment"}


async def test_when_two_apps_of_a_process_export_then_both_name_the_process(
    collector: Collector,
) -> None:
    """Of several processes, each has counts of its own."""
    for _ in range(2):
        shop = Shop("memory://", OpenTelemetry.otlp(service_name="shop"))
        async with shop.app:
            await shop.app.post(PlaceOrder(), queue="orders")

    [instance] = collector.instances()
    assert instance


async def test_when_the_environment_says_so_then_nothing_is_sampled(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "always_off")
    shop = Shop("memory://", OpenTelemetry.otlp())

    async with shop.open() as dispatcher:
        await shop.app.post(PlaceOrder())
        await dispatcher.wait_until_empty()

    assert shop.shipped == [0]
    assert collector.spans() == []


async def test_when_an_endpoint_is_given_then_it_stands_above_the_environment(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1/nowhere")
    shop = Shop("memory://", OpenTelemetry.otlp(endpoint=f"{collector.url}/"))

    async with shop.app:
        await shop.app.post(PlaceOrder(), queue="orders")

    assert [span.name for span in collector.spans()] == ["send orders"]


async def test_when_the_app_closes_then_its_metrics_are_sent_with_our_histograms_among_them(
    collector: Collector,
) -> None:
    """R60."""
    rig = Rig()
    rig.app.telemetry = OpenTelemetry.otlp(traces=False)
    async with rig:
        await rig.start()
        await rig.send(1, 2)
        await rig.clock.settle()
        await rig.finish()

    exported = collector.exports()[-1]
    [sent] = exported["queue_messages_sent"].sum.data_points
    assert (sent.as_int, attributes_of(sent)) == (2, {"queue": "orders"})
    durations = exported["messaging.process.duration"]
    [handled] = durations.histogram.data_points
    assert durations.unit == "s"
    assert handled.count == 2
    assert list(handled.explicit_bounds) == list(BOUNDS_S)
    assert len(handled.bucket_counts) == len(BOUNDS_S) + 1
    assert not handled.HasField("min")
    assert durations.histogram.aggregation_temporality == 2  # Cumulative.
    assert 0 < handled.start_time_unix_nano <= handled.time_unix_nano
    assert collector.spans() == []


async def test_when_the_collector_prefers_deltas_then_each_export_has_what_is_new(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE", "delta")
    telemetry = OpenTelemetry.otlp(traces=False)
    rig = Rig()
    rig.app.telemetry = telemetry
    async with rig:
        await rig.start()
        await rig.send(1, 2)
        await rig.clock.settle()
        await telemetry.flush()
        await rig.send(3)
        await rig.clock.settle()
        await rig.finish()

    counts = []
    for exported in collector.exports()[:2]:
        durations = exported["messaging.process.duration"].histogram
        assert durations.aggregation_temporality == 1  # Delta.
        [point] = durations.data_points
        counts.append((point.count, sum(point.bucket_counts)))
    assert counts == [(2, 2), (1, 1)]


async def test_when_the_app_is_opened_again_then_it_exports_again(collector: Collector) -> None:
    shop = Shop("memory://", OpenTelemetry.otlp())

    for order in (1, 2):
        async with shop.open() as dispatcher:
            await shop.app.post(PlaceOrder(order=order))
            await dispatcher.wait_until_empty()

    assert shop.shipped == [1, 2]
    assert len([span for span in collector.spans() if span.name == "process parcels"]) == 2


async def test_when_the_collector_does_not_answer_then_closing_does_not_wait_for_it(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The app closes while the export is still under way."""
    monkeypatch.setattr("pump.observability.otel.telemetry._CLOSE_S", 0.05)
    collector.may_answer.clear()
    shop = Shop("memory://", OpenTelemetry.otlp(metrics=False))

    async with shop.open() as dispatcher:
        await shop.app.post(PlaceOrder(order=1))
        await dispatcher.wait_until_empty()

    assert shop.shipped == [1]
    assert not collector.may_answer.is_set()


async def test_when_the_collector_refuses_then_the_messages_are_handled_all_the_same(
    collector: Collector,
) -> None:
    collector.status = 400
    shop = Shop("memory://", OpenTelemetry.otlp())

    async with shop.open() as dispatcher:
        await shop.app.post(PlaceOrder(order=1))
        await dispatcher.wait_until_empty()

    assert shop.shipped == [1]
    assert collector.bodies
