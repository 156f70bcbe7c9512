"""OpenTelemetry: traces and metrics of an app, through the providers of the program or our own.

In an app:

    from pump.observability.otel import OpenTelemetry

    app = App("sqs://", telemetry=OpenTelemetry.otlp(service_name="orders"))
"""

from __future__ import annotations

from ...errors import ConfigurationError

try:
    from .telemetry import OpenTelemetry
except ModuleNotFoundError as error:
    if not (error.name or "").startswith("opentelemetry"):
        raise
    raise ConfigurationError(
        "telemetry", "OpenTelemetry", f"{error}; try: pip install 'pumphouse[otel]'"
    ) from error
except ValueError as error:
    # The only variable that OpenTelemetry reads when it is imported.
    raise ConfigurationError(
        "telemetry", "OpenTelemetry", f"{error} See OTEL_PROPAGATORS"
    ) from error

__all__ = ["OpenTelemetry"]
