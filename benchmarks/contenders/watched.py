"""Pumphouse on the memory gateway while observed: logs, metrics, traces, ledger, encryption."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

from gateways.memory import MemoryGateway
from pump.cli.session import set_up_logging
from pump.crypto import Encryption, Key, KeyRing
from pump.event_loop import run as run_loop
from pump.message import Delivery, Message
from pump.observability.metrics import Metrics
from pump.observability.otel import OpenTelemetry
from pump.observability.telemetry import Counters
from pump.stores.ledger.sqlite_ledger import SqliteLedger

from ..reading import Reading, Stopwatch
from .pump import Parcel, Tick, measure

_RUNS = 5
"""The cheapest counts: what is looked for is a few per cent, and a neighbour on the same machine
adds ten times as much, but never takes anything away.
"""
_MESSAGES = 100


def run(count: int, *, watch: str, body: str) -> Reading:
    """Measure with everything that `watch` names, separated by spaces."""
    runs = [run_loop(_measure(count, watch.split(), body)) for _ in range(_RUNS)]
    return min(runs, key=lambda reading: reading.cpu_s)


async def _measure(count: int, wanted: Sequence[str], body: str) -> Reading:
    options: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(dir=os.getcwd()) as folder:
        for each in wanted:
            options |= _WATCHERS[each](Path(folder))
        request = Parcel if body == "parcel" else Tick
        return await measure(MemoryGateway(), count, request=request, **options)


# What can be switched on, each as options of an app.

_Options = dict[str, Any]


class _DiscardingExporter(SpanExporter):
    """A span costs what it costs until it leaves the process; its way from there does not count."""

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        return SpanExportResult.SUCCESS

    def shutdown(self) -> None:
        pass


def _logs(folder: Path) -> _Options:
    # To a file, line by line, as a terminal or a container's log driver would get them.
    sys.stderr = (folder / "log").open("w", buffering=1)
    set_up_logging("info", "json")
    return {}


def _metrics(folder: Path) -> _Options:
    return {"telemetry": Metrics()}


def _traces(folder: Path) -> _Options:
    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(_DiscardingExporter()))
    return {"telemetry": OpenTelemetry(tracer_provider=provider, metrics=False)}


def _metrics_and_traces(folder: Path) -> _Options:
    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(_DiscardingExporter()))
    return {"telemetry": OpenTelemetry(tracer_provider=provider)}


def _ledger(folder: Path) -> _Options:
    return {"ledger": SqliteLedger(folder / "ledger.db")}


def _encryption(folder: Path) -> _Options:
    return {"encryption": Encryption(KeyRing(Key.generate("benchmark")))}


_WATCHERS: dict[str, Callable[[Path], _Options]] = {
    "logs": _logs,
    "metrics": _metrics,
    "traces": _traces,
    "metrics+traces": _metrics_and_traces,
    "ledger": _ledger,
    "encryption": _encryption,
}


def run_encryption_alone(count: int) -> Reading:
    """Encrypting and decrypting a kibibyte, and nothing else."""
    runs = [run_loop(_measure_encryption(count)) for _ in range(_RUNS)]
    return min(runs, key=lambda reading: reading.cpu_s)


async def _measure_encryption(count: int) -> Reading:
    encryption = Encryption(KeyRing(Key.generate("benchmark")))
    await encryption.start(Counters(), None)
    # The same few again and again: not the memory of a great many is measured.
    messages = [Message(body=b"x" * 1024, correlation_id="c", group="g") for _ in range(_MESSAGES)]
    sealed = [await encryption.encrypt(message, "ticks") for message in messages]
    deliveries = [
        Delivery(message=each, queue="ticks", receipt="r", attempt=1, lease_expires_at_s=1e12)
        for each in sealed
    ]
    watch = Stopwatch()
    with watch.span("seal"):
        for number in range(count):
            await encryption.encrypt(messages[number % _MESSAGES], "ticks")
    with watch.span("open"):
        for number in range(count):
            opened = await encryption.decrypt(deliveries[number % _MESSAGES])
            assert len(opened.body) == 1024
    await encryption.aclose()
    return watch.reading(count)
