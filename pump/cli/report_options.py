"""The options that both commands for reports share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from .options import app_option, gateway_option, json_option

_F = TypeVar("_F", bound=Callable[..., Any])
DEFAULT_OUT = Path(".pumphouse/report")


def report_options(command: _F) -> _F:
    """Give a command what `reporting.Asked` holds."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


_OPTIONS = [
    click.option(
        "--ledger",
        metavar="PATH",
        help="A folder of Parquet files or a SQLite file that a pump wrote. Default: "
        ".pumphouse/ledger.db, else .pumphouse/ledger.",
    ),
    click.option(
        "--dead-letters",
        "dead_letters",
        metavar="QUEUE",
        multiple=True,
        help="Also what lies in this queue, left where it is; may be repeated.",
    ),
    click.option(
        "--since",
        metavar="WHEN",
        default="7d",
        help="From when on: a duration back from now (1h), a UTC date or time (2026-11-16, "
        "2026-11-16T08:30), or all. Default: 7d.",
    ),
    click.option("--until", metavar="WHEN", help="Until when, written likewise. Default: no end."),
    click.option(
        "--type", "types", metavar="NAME", multiple=True, help="Only this type of message."
    ),
    click.option(
        "--out",
        type=click.Path(file_okay=False, path_type=Path),
        default=DEFAULT_OUT,
        metavar="FOLDER",
        help=f"Where to write to. Default: {DEFAULT_OUT}.",
    ),
    click.option(
        "--force", is_flag=True, help="Write into the folder though others' files are in it."
    ),
    click.option("--open", "is_opened", is_flag=True, help="Show the page in a browser."),
    app_option,
    gateway_option,
    json_option,
]
