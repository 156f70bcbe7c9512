"""The bridge sample between gateways that have nothing in common."""

from __future__ import annotations

from pathlib import Path

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from pump.observability.otel import OpenTelemetry
from samples import bridge
from tests.brokers.nats_server import NatsServer

SPANS = ["process", "receive", "send", "settle"]


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Apps keep what they could not route below the working folder."""
    monkeypatch.chdir(tmp_path)


async def cross(source: str, target: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Send an order over the bridge, and look at what was printed and traced."""
    spans = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(spans))

    await bridge.main(source, target, lambda: OpenTelemetry(tracer_provider=provider))

    # Sorted: the warehouse may have the order before the bridge has heard that it is sent.
    assert sorted(capsys.readouterr().out.splitlines()) == [
        "bridged a PlaceOrder, still sealed: True",
        "the warehouse packs order 1",
    ]
    found = spans.get_finished_spans()
    sent = [span for span in found if span.name.startswith("send")]
    trace_id = sent[0].context.trace_id
    names = sorted(span.name.split()[0] for span in found if span.context.trace_id == trace_id)
    assert names == sorted(SPANS * 2)


async def test_when_bridged_then_it_arrives_sealed_and_in_one_trace(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """R59, R62: what travels on is what was sent, and the trace goes through."""
    await cross(f"local://{tmp_path}/here", f"local://{tmp_path}/there", capsys)


@pytest.mark.broker
async def test_when_bridged_from_rabbitmq_to_nats_then_it_arrives_sealed_and_in_one_trace(
    rabbitmq_url: str, nats: NatsServer, capsys: pytest.CaptureFixture[str]
) -> None:
    """R55: two brokers, and the same app on either side."""
    await cross(rabbitmq_url, nats.url, capsys)


@pytest.mark.broker
async def test_when_bridged_from_nats_to_rabbitmq_then_it_arrives_sealed_and_in_one_trace(
    rabbitmq_url: str, nats: NatsServer, capsys: pytest.CaptureFixture[str]
) -> None:
    await cross(nats.url, rabbitmq_url, capsys)
