"""Watchers: what can be switched on, each as options of an app."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

from pump.cli.log_setup import set_up_logging
from pump.crypto import Encryption, Key, KeyRing
from pump.observability.metrics import Metrics
from pump.observability.otel import OpenTelemetry
from pump.stores.ledger.sqlite_ledger import SqliteLedger

Options = dict[str, Any]


class _Discarding(SpanExporter):
    """What a span costs until it leaves the process; what its way from there costs is another's."""

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        return SpanExportResult.SUCCESS

    def shutdown(self) -> None:
        pass


def _logs(folder: Path) -> Options:
    # To a file, line by line, as a terminal or a container's log driver would get them.
    sys.stderr = (folder / "log").open("w", buffering=1)
    set_up_logging("info", "json")
    return {}


def _metrics(folder: Path) -> Options:
    return {"telemetry": Metrics()}


def _traces(folder: Path) -> Options:
    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(_Discarding()))
    return {"telemetry": OpenTelemetry(tracer_provider=provider, metrics=False)}


def _metrics_and_traces(folder: Path) -> Options:
    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(_Discarding()))
    return {"telemetry": OpenTelemetry(tracer_provider=provider)}


def _ledger(folder: Path) -> Options:
    return {"ledger": SqliteLedger(folder / "ledger.db")}


def _encryption(folder: Path) -> Options:
    return {"encryption": Encryption(KeyRing(Key.generate("benchmark")))}


WATCHERS: dict[str, Callable[[Path], Options]] = {
    "logs": _logs,
    "metrics": _metrics,
    "traces": _traces,
    "metrics+traces": _metrics_and_traces,
    "ledger": _ledger,
    "encryption": _encryption,
}
