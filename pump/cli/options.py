"""Options that several commands share, and the types of their values."""

from __future__ import annotations

from datetime import timedelta

import click

from ..durations import parse_duration


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


def _gateway() -> str | None:
    from .settings import Settings

    return Settings.from_environment().gateway


def _log_level() -> str:
    from .settings import Settings

    return Settings.from_environment().log_level or "info"


def _log_format() -> str:
    from .settings import Settings

    return Settings.from_environment().log_format or "auto"


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
