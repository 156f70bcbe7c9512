"""Telemetry as the command line names it: where traces and metrics go."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from ..errors import ConfigurationError
from ..observability.metrics_server import DEFAULT_HOST, DEFAULT_PORT
from ..observability.telemetry import Telemetry

OFF = "off"
OTLP = "otlp"
PROMETHEUS = "prometheus"
_REMEDY = f"use {OTLP}, {PROMETHEUS}, {PROMETHEUS}:[HOST:]PORT or {OFF}"


@attrs.frozen(kw_only=True)
class TelemetryChoice:
    """What was asked for, all together."""

    is_off: bool = False
    is_otlp: bool = False
    port: int | None = None
    """Where Prometheus' text is served; None for nowhere."""
    host: str = DEFAULT_HOST
    is_measured: bool = False
    """Whether to measure all the same, for whoever asks for the text."""

    def unserved(self) -> TelemetryChoice:
        """The same, but for the port: somebody else listens there, and asks."""
        return attrs.evolve(self, port=None, is_measured=self.port is not None)


def telemetry_choice(kinds: Sequence[str]) -> TelemetryChoice:
    """Read `otlp`, `prometheus:9464`, `off`; `ConfigurationError` for anything else."""
    choice = TelemetryChoice()
    for kind in kinds:
        name, _, address = kind.partition(":")
        if name == PROMETHEUS:
            host, port = _address(kind, address)
            choice = attrs.evolve(choice, host=host, port=port)
        elif kind == OTLP:
            choice = attrs.evolve(choice, is_otlp=True)
        elif kind == OFF:
            if set(kinds) != {OFF}:
                raise ConfigurationError("--telemetry", kind, "off stands alone; leave one out")
            choice = attrs.evolve(choice, is_off=True)
        else:
            raise ConfigurationError("--telemetry", kind, _REMEDY)
    return choice


def _address(kind: str, address: str) -> tuple[str, int]:
    if kind == PROMETHEUS:
        return DEFAULT_HOST, DEFAULT_PORT
    host, _, port = address.rpartition(":")
    if not port.isdecimal() or len(port) > 5 or int(port) > 65_535:
        raise ConfigurationError("--telemetry", kind, _REMEDY)
    return host.removeprefix("[").removesuffix("]") or DEFAULT_HOST, int(port)


def telemetry_of(choice: TelemetryChoice, service_name: str) -> Telemetry | None:
    """What does that; None for nothing. OpenTelemetry is loaded only if it is needed."""
    if choice.is_otlp:
        from ..observability.otel import OpenTelemetry

        return OpenTelemetry.otlp(
            service_name=service_name,
            # A process of ours alone: what the app's own code traces is to go the same way.
            is_global=True,
            prometheus_port=choice.port,
            prometheus_host=choice.host,
        )
    if choice.port is not None or choice.is_measured:
        from ..observability.metrics import Metrics

        return Metrics(port=choice.port, host=choice.host)
    return None
