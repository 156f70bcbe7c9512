"""Options that several commands share, and the types of their values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, TypeVar

import attrs
import click

from ..clock import parse_duration
from ..errors import ConfigurationError
from ..observability.metrics import DEFAULT_HOST, DEFAULT_PORT
from ..observability.telemetry import Telemetry

_Command = TypeVar("_Command", bound=Callable[..., Any] | click.Command)

# Telemetry as the command line names it: where traces and metrics go.

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
    """Whether to measure all the same, for requests for the text."""

    def unserved(self) -> TelemetryChoice:
        """The same, but for the port: another process listens there, and asks."""
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


def duration(text: str | timedelta) -> timedelta:
    """100ms, 5s, 2m, 1h30m."""
    if isinstance(text, timedelta):
        return text
    try:
        return parse_duration(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def pair(text: str) -> tuple[str, str]:
    """`name=value`."""
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        raise click.BadParameter(f"{text!r} has no name and value; write name=value")
    return name.strip(), value


def counted_pair(text: str) -> tuple[str, int]:
    """`name=number`."""
    name, number = pair(text)
    if not number.strip().isdecimal() or int(number) < 1:
        raise click.BadParameter(f"{text!r}: {number!r} is not a whole number of 1 or more")
    return name, int(number)


def health_address(text: str) -> str:
    """[HOST:]PORT."""
    return _checked(text, health=text)


def control_address(text: str) -> str:
    """PORT, HOST:PORT or unix:PATH, on this machine."""
    return _checked(text, control=text)


def _checked(text: str, *, health: str | None = None, control: str | None = None) -> str:
    from ..errors import ConfigurationError
    from ..health.options import HealthOptions

    try:
        HealthOptions.from_addresses(health, control)
    except ConfigurationError as error:
        raise click.BadParameter(f"{text!r}: {error.remedy}") from None
    return text


def _gateway() -> str | None:
    from ..secret import revealed
    from .settings import EnvironmentSettings

    return revealed(EnvironmentSettings.from_environment().gateway)


def _log_level() -> str:
    from .settings import EnvironmentSettings

    return EnvironmentSettings.from_environment().log_level or "info"


def _log_format() -> str:
    from .settings import EnvironmentSettings

    return EnvironmentSettings.from_environment().log_format or "auto"


def _log_sample() -> str:
    from .settings import EnvironmentSettings

    return EnvironmentSettings.from_environment().log_sample or "1"


def _telemetry() -> tuple[str, ...]:
    from .settings import EnvironmentSettings

    return tuple((EnvironmentSettings.from_environment().telemetry or "").replace(",", " ").split())


def telemetry_kind(text: str) -> str:
    """otlp, prometheus, prometheus:[HOST:]PORT, off."""
    from ..errors import ConfigurationError

    try:
        telemetry_choice([text])
    except ConfigurationError as error:
        raise click.BadParameter(f"{text!r}: {error.remedy}") from None
    return text


def _health() -> str | None:
    from .settings import EnvironmentSettings

    return EnvironmentSettings.from_environment().health


def _control() -> str | None:
    from .settings import EnvironmentSettings

    return EnvironmentSettings.from_environment().control


gateway_option = click.option(
    "--gateway",
    "-g",
    metavar="URL",
    default=_gateway,
    help="The broker, such as local:// or sqs://; by default $PUMP_GATEWAY, then the app's own, "
    "then local://.",
)
app_option = click.option(
    "--app",
    "-a",
    metavar="MODULE:APP",
    help="Use this app's gateway and queues.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
yes_option = click.option(
    "--yes", "-y", is_flag=True, help="Do not ask; needed where there is no terminal."
)
until_empty_option = click.option(
    "--until-empty", is_flag=True, help="Stop by itself, once the app's queues are empty."
)
types_option = click.option(
    "--type", "types", metavar="NAME", multiple=True, help="Only this type of message."
)
health_option = click.option(
    "--health",
    type=health_address,
    metavar="[HOST:]PORT",
    default=_health,
    help="Answer probes there: /livez, /readyz, /health, /metrics. Default: $PUMP_HEALTH, else "
    "nowhere.",
)
control_option = click.option(
    "--control",
    type=control_address,
    metavar="PORT|unix:PATH",
    default=_control,
    help="Let `pump control` pause, scale and drain it, from this machine alone. Default: "
    "$PUMP_CONTROL, else not at all.",
)
telemetry_option = click.option(
    "--telemetry",
    type=telemetry_kind,
    metavar="KIND",
    multiple=True,
    default=_telemetry,
    help="otlp exports traces and metrics as the OTEL_* variables say, prometheus[:[HOST:]PORT] "
    "serves metrics, off is neither; may be repeated. Default: $PUMP_TELEMETRY, then the app's "
    "own.",
)
at_option = click.option(
    "--at",
    type=control_address,
    metavar="PORT|unix:PATH",
    default=_control,
    help="Where the app is controlled: what it was started with as --control. Default: "
    "$PUMP_CONTROL.",
)


def since_option(default: str) -> Callable[[_Command], _Command]:
    """`--since`, by default so long ago."""
    return click.option(
        "--since",
        metavar="WHEN",
        default=default,
        help="From when on: a duration back from now (1h), a UTC date or time (2026-11-16, "
        f"2026-11-16T08:30), or all. Default: {default}.",
    )


def concurrencies_option(where: str = "") -> Callable[[_Command], _Command]:
    """`--concurrency`, of handlers in the app or in each of several parts of it."""
    return click.option(
        "--concurrency",
        "-c",
        "concurrencies",
        type=counted_pair,
        metavar="NAME=N",
        multiple=True,
        help=f"Run N handlers of subscription NAME at once{where}; may be repeated.",
    )


log_level_option = click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"], case_sensitive=False),
    default=_log_level,
    help="How much to log; info has one line a delivery. Default: $PUMP_LOG_LEVEL, then info.",
)
log_format_option = click.option(
    "--log-format",
    type=click.Choice(["auto", "json", "console"], case_sensitive=False),
    default=_log_format,
    help="auto is console on a terminal and JSON elsewhere. Default: $PUMP_LOG_FORMAT, then auto.",
)
log_sample_option = click.option(
    "--log-sample",
    type=click.IntRange(min=1),
    metavar="N",
    default=_log_sample,
    help="For high rates: of the messages that are processed at the first attempt, log one in N "
    "(chosen by id, marked sampled=N). Retries and rejections are always logged. Default: "
    "$PUMP_LOG_SAMPLE, then 1, which is all.",
)
