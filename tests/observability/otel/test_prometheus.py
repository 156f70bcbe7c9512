"""Prometheus: the text, as its own parser reads it, and the server."""

from __future__ import annotations

import asyncio
import socket
import threading
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import pytest
from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.sdk.metrics import MeterProvider
from prometheus_client import REGISTRY, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from structlog.testing import capture_logs

from pump import App
from pump.errors import ConfigurationError
from pump.http.server import MAX_CONNECTIONS
from pump.observability.metrics import Metrics, MetricsServer
from pump.observability.metrics_catalogue import CONTENT_TYPE, Durations, as_text
from pump.observability.otel import OpenTelemetry
from pump.observability.telemetry import TextMetrics
from tests.core.rig import Rig
from tests.health.caller import call, connect


def samples(text: bytes) -> dict[str, dict[tuple[tuple[str, str], ...], float]]:
    """Values by sample name and labels."""
    found: dict[str, dict[tuple[tuple[str, str], ...], float]] = {}
    for family in text_string_to_metric_families(text.decode()):
        for sample in family.samples:
            labels = tuple(sorted(sample.labels.items()))
            found.setdefault(sample.name, {})[labels] = sample.value
    return found


@asynccontextmanager
async def served(text: Callable[[], bytes]) -> AsyncIterator[str]:
    """Serve a text; gives the address without the path."""
    server = MetricsServer(text, "127.0.0.1", 0)
    server.start()
    try:
        yield str(server.url).removesuffix("/metrics")
    finally:
        await server.stop()


async def worked(metrics: Any) -> Rig:
    rig = Rig()
    rig.app.telemetry = metrics
    async with rig:
        await rig.start()
        await rig.send(1, 2)
        await rig.clock.settle()
        await rig.finish()
    return rig


@pytest.mark.parametrize("kind", [Metrics, lambda: OpenTelemetry(traces=False)])
async def test_when_messages_were_handled_then_prometheus_can_read_how_many(kind: Any) -> None:
    """R60, and the names of R71 to the letter."""
    metrics = kind()
    await worked(metrics)

    text = metrics.prometheus_text()
    found = samples(text)

    orders = (("queue", "orders"),)
    assert isinstance(metrics, TextMetrics)
    # The parser adds `_total` to counters; what we write is what R71 says.
    assert b'\nqueue_messages_sent{queue="orders"} 2\n' in text
    assert found["pump_messages_completed_total"][orders] == 2
    labels = (
        ("messaging_destination_name", "orders"),
        ("messaging_operation_name", "process"),
        ("messaging_system", "pumphouse_memory"),
    )
    assert found["messaging_process_duration_seconds_count"][labels] == 2
    buckets = found["messaging_process_duration_seconds_bucket"]
    assert buckets[tuple(sorted((*labels, ("le", "+Inf"))))] == 2
    assert buckets[tuple(sorted((*labels, ("le", "0.005"))))] == 2


def test_when_buckets_are_written_then_each_holds_all_that_is_below_it() -> None:
    counts = tuple(range(1, 16))
    durations = Durations(name="messaging.process.duration", labels=(), counts=counts, sum_s=1.5)

    found = samples(as_text({}, {}, [durations]))

    buckets = found["messaging_process_duration_seconds_bucket"]
    values = [buckets[("le", bound),] for bound in ("0.005", "0.01", "0.025", "+Inf")]
    assert values == [1, 3, 6, sum(counts)]
    assert found["messaging_process_duration_seconds_sum"][()] == 1.5


def test_when_a_queue_has_a_strange_name_then_the_text_is_still_readable() -> None:
    strange = 'a"b\\c\nd'

    found = samples(as_text({("queue_messages_sent", (("queue", strange),)): 3}, {}, ()))

    assert found["queue_messages_sent_total"] == {(("queue", strange),): 3}


async def test_when_a_port_is_given_then_the_metrics_are_served_while_the_app_is_open() -> None:
    metrics = Metrics(port=0)
    app = App("memory://", telemetry=metrics)
    app.counters.add("shop_gifts_wrapped")

    async with app:
        url = metrics.url
        assert url is not None
        answer, content_type = _fetch(url)
        with pytest.raises(urllib.error.HTTPError, match="404"):
            _fetch(url.replace("metrics", "secrets"))
    with pytest.raises(urllib.error.URLError):
        _fetch(url)

    assert b"shop_gifts_wrapped 1" in answer
    assert content_type == CONTENT_TYPE
    assert metrics.url is None


async def test_when_served_on_an_ipv6_address_then_the_url_that_is_told_works() -> None:
    server = MetricsServer(lambda: b"up 1\n", "::1", 0)
    try:
        server.start()
    except ConfigurationError:
        pytest.skip("this machine has no IPv6")
    try:
        url = str(server.url)
        answer, _ = await asyncio.to_thread(_fetch, url)
    finally:
        await server.stop()

    # urllib takes it without the brackets too, most others do not.
    assert urlsplit(url).hostname == "::1"
    assert answer == b"up 1\n"


async def test_when_a_scrape_fails_then_no_traceback_is_printed_between_the_logs_lines(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """R61. A defect is named on the log; the client is told no more than that there is one."""

    def fails() -> bytes:
        raise RuntimeError("secret-token-123")

    with capture_logs() as log:
        async with served(fails) as url:
            reply = await call(url, "GET", "/metrics")

    said = [line["error_type"] for line in log if line["event"] == "telemetry.failed"]
    assert (reply.status, said) == (500, ["RuntimeError"])
    assert b"secret-token" not in reply.body
    assert capsys.readouterr() == ("", "")


async def test_when_a_client_hangs_up_then_that_is_no_news(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """R61. Before it has asked, and before it has read what it asked for."""
    with capture_logs() as log:
        async with served(lambda: b"x" * 50_000_000) as url:
            for request in (b"GET /met", b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n"):
                reader, writer = await connect(url)
                writer.write(request)
                if request.endswith(b"\n"):
                    await reader.readexactly(1)
                writer.transport.abort()
            assert (await call(url, "HEAD", "/metrics")).status == 200

    assert [line["event"] for line in log] == ["metrics.served"]
    assert capsys.readouterr() == ("", "")


async def test_when_slow_clients_crowd_in_then_a_scrape_is_still_answered() -> None:
    """What holds for probes holds for metrics: the server is the same."""
    async with served(lambda: b"up 1\n") as url:
        slow = [await connect(url) for _ in range(MAX_CONNECTIONS + 1)]
        for _, writer in slow:
            writer.write(b"GET /metrics HTTP/1.1\r\n")

        reply = await call(url, "GET", "/metrics")

        assert (reply.status, reply.body) == (200, b"up 1\n")
        for _, writer in slow:
            writer.transport.abort()


async def test_when_the_loop_is_busy_then_the_metrics_are_served_all_the_same() -> None:
    async with served(lambda: b"up 1\n") as url:
        # The call blocks this loop until the answer is there.
        body, _ = _fetch(f"{url}/metrics")

    assert body == b"up 1\n"


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("POST", "/metrics", 405), ("GET", "/", 404), ("GET", "/metrics/more", 404)],
)
async def test_when_something_else_is_asked_then_it_is_refused(
    method: str, path: str, status: int
) -> None:
    async with served(lambda: b"up 1\n") as url:
        reply = await call(url, method, path)

    assert reply.status == status
    assert reply.json()["error"]


async def test_when_it_has_stopped_then_its_thread_has_ended_and_it_may_start_again() -> None:
    server = MetricsServer(lambda: b"up 1\n", "127.0.0.1", 0)
    for _ in range(2):
        server.start()
        body, _ = await asyncio.to_thread(_fetch, str(server.url))
        await server.stop()

        assert body == b"up 1\n"
        assert server.url is None
        assert "pump-metrics" not in [thread.name for thread in threading.enumerate()]
    await server.stop()


async def test_when_the_port_is_taken_then_opening_says_so() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        app = App("memory://", telemetry=Metrics(port=port))

        with pytest.raises(ConfigurationError, match="choose another port"):
            await app.__aenter__()


async def test_when_the_program_has_a_prometheus_reader_then_our_metrics_are_in_its_registry() -> (
    None
):
    """The program's own provider: its exporter appends `_total`, as OpenTelemetry prescribes."""
    provider = MeterProvider([PrometheusMetricReader()], shutdown_on_exit=False)
    try:
        await worked(OpenTelemetry(traces=False, meter_provider=provider))
        found = samples(generate_latest(REGISTRY))
    finally:
        provider.shutdown()

    [sent] = found["queue_messages_sent_total"].values()
    [handled] = found["messaging_process_duration_seconds_count"].values()
    assert (sent, handled) == (2, 2)


def _fetch(url: str) -> tuple[bytes, str]:
    with urllib.request.urlopen(url, timeout=5) as answer:
        return answer.read(), answer.headers["Content-Type"]
