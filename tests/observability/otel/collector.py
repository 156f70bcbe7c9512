"""A collector's stand-in: takes OTLP over HTTP as one would, and keeps what it was sent."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


class Collector:
    """What was sent: raw bodies by path, and decoded."""

    def __init__(self) -> None:
        self.url = ""
        self.status = 200
        self.bodies: list[tuple[str, bytes]] = []
        self.may_answer = threading.Event()
        self.may_answer.set()
        self.was_asked = threading.Event()

    def spans(self) -> list[Any]:
        """Every span, as it came over the wire."""
        return [
            span
            for body in self._bodies("/v1/traces")
            for resource in ExportTraceServiceRequest.FromString(body).resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]

    def services(self) -> set[str]:
        """The names of the services that sent spans."""
        return self._said_by_resources("service.name")

    def instances(self) -> set[str]:
        """The ids of the processes that sent spans."""
        return self._said_by_resources("service.instance.id")

    def _said_by_resources(self, key: str) -> set[str]:
        return {
            attribute.value.string_value
            for body in self._bodies("/v1/traces")
            for resource in ExportTraceServiceRequest.FromString(body).resource_spans
            for attribute in resource.resource.attributes
            if attribute.key == key
        }

    def exports(self) -> list[dict[str, Any]]:
        """The metrics of each export, by name."""
        return [
            {
                metric.name: metric
                for resource in ExportMetricsServiceRequest.FromString(body).resource_metrics
                for scope in resource.scope_metrics
                for metric in scope.metrics
            }
            for body in self._bodies("/v1/metrics")
        ]

    def _bodies(self, path: str) -> list[bytes]:
        return [body for at, body in self.bodies if at == path]


@contextmanager
def collecting() -> Iterator[Collector]:
    """Listen on a free port while the block runs."""
    collector = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            collector.bodies.append((self.path, body))
            collector.was_asked.set()
            if not collector.may_answer.is_set():
                collector.may_answer.wait()
            self.send_response(collector.status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            """Silent."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    collector.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield collector
    finally:
        collector.may_answer.set()
        server.shutdown()
        thread.join()
        server.server_close()


def attributes_of(found: Any) -> dict[str, Any]:
    """Attributes as they came over the wire, by name."""
    return {
        each.key: getattr(each.value, each.value.WhichOneof("value")) for each in found.attributes
    }
