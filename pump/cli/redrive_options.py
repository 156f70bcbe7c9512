"""The options that `pump redrive` and `pump spark redrive` share."""

from __future__ import annotations

from collections.abc import Callable
from math import isfinite
from typing import Any, TypeVar

import click

from .options import json_option

_F = TypeVar("_F", bound=Callable[..., Any])


def redrive_options(command: _F) -> _F:
    """Give a command the argument QUEUE and what says which messages go where, and how fast."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def _finite(_context: click.Context, _option: click.Parameter, value: float | None) -> float | None:
    if value is not None and not isfinite(value):
        raise click.BadParameter("name a number, such as 50; leave it out for no limit")
    return value


_OPTIONS = [
    click.argument("queue"),
    click.option("--to", metavar="QUEUE", required=True, help="Where to send them."),
    click.option(
        "--where",
        metavar="SQL",
        required=True,
        help="Which: a condition over the columns above; TRUE for all.",
    ),
    click.option(
        "--dry-run",
        is_flag=True,
        help="Show what would be sent, and send nothing. Where a look is a receive, as on SQS, it "
        "counts as a delivery of each message.",
    ),
    click.option(
        "--rate",
        type=click.FloatRange(min=0, min_open=True),
        callback=_finite,
        metavar="N",
        help="At most N messages a second. Default: as fast as it goes.",
    ),
    click.option(
        "--limit",
        type=click.IntRange(min=1),
        metavar="N",
        help="At most N messages, the longest rejected first.",
    ),
    click.option(
        "--ledger",
        metavar="PATH",
        help="Record each message there, as `redriven`. Default: the app's own, else the one in "
        ".pumphouse.",
    ),
    click.option(
        "--run",
        metavar="FOLDER",
        help="Keep snapshot and record there, so that an interrupted redrive can go on. Default: "
        "a folder of the queue's own in .pumphouse/redrive.",
    ),
    json_option,
]
