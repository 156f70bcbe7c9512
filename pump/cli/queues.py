"""`pump queues`: what is in every queue, once or again and again."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import attrs
import click
from rich.console import RenderableType
from rich.text import Text

from ..app import App
from ..clock import SYSTEM_CLOCK, format_duration
from ..ports import QueueStats
from .console import print_json, print_json_line, printable, stdout, table
from .options import app_option, duration, gateway_option, json_option


@click.command(short_help="Show what is in every queue.")
@click.option("--watch", "-w", is_flag=True, help="Look again and again, until Ctrl-C.")
@click.option(
    "--every",
    type=duration,
    metavar="DURATION",
    default="1s",
    help="How often to look. Default: 1s.",
)
@app_option
@gateway_option
@json_option
def queues(
    *, watch: bool, every: timedelta, app: str | None, gateway: str | None, as_json: bool
) -> None:
    """Show every queue: how many messages wait, are in flight or delayed, and the oldest's age.

    \b
    Examples:
      pump queues
      pump queues --watch
      pump queues --json | jq '.[] | select(.visible > 1000)'

    With --watch and --json each look is one line.
    """
    if watch and not every:
        raise click.UsageError("--every 0 would never rest; use 100ms or more")

    from .session import app_for, in_session

    opened = app_for(app, gateway)
    if not watch:
        stats = in_session(opened, lambda it: it.admin.queues())
        print_queues(stats, as_json=as_json)
        return
    try:
        in_session(opened, lambda it: watch_queues(it, every=every, as_json=as_json))
    except KeyboardInterrupt:
        return


# Watching: the state of the queues as a table or as JSON.

_NO_QUEUES = "There are no queues yet; `pump run` makes those of its app."
_COLUMNS = ["queue", "waiting", "in flight", "delayed", "oldest"]


def print_queues(stats: Sequence[QueueStats], *, as_json: bool) -> None:
    """Print what is in each queue."""
    if as_json:
        print_json([attrs.asdict(each) for each in stats])
    else:
        stdout().print(queue_table(stats), soft_wrap=not stats)


async def watch_queues(app: App, *, every: timedelta, as_json: bool) -> None:
    """Print what is in each queue, until cancelled; on a terminal always in the same place."""
    console = stdout()
    if as_json or not console.is_terminal:
        while True:
            _print_look(await app.admin.queues(), as_json=as_json)
            await SYSTEM_CLOCK.sleep(every.total_seconds())
    from rich.live import Live

    with Live(console=console, auto_refresh=False) as live:
        while True:
            live.update(queue_table(await app.admin.queues()), refresh=True)
            await SYSTEM_CLOCK.sleep(every.total_seconds())


def queue_table(stats: Sequence[QueueStats], *, empty: str = _NO_QUEUES) -> RenderableType:
    """The queues as a table; `empty` is said when there are none."""
    if not stats:
        return Text(empty)
    return table(_COLUMNS, map(_row, stats), right=_COLUMNS[1:])


def _print_look(stats: Sequence[QueueStats], *, as_json: bool) -> None:
    if as_json:
        print_json_line([attrs.asdict(each) for each in stats])
    else:
        print_queues(stats, as_json=False)


def _row(stats: QueueStats) -> list[str | Text]:
    age_s = stats.oldest_age_s
    return [
        printable(stats.name),
        Text(f"{stats.visible:,}", "bold" if stats.visible else ""),
        f"{stats.in_flight:,}",
        f"{stats.delayed:,}",
        "" if age_s is None else format_duration(age_s),
    ]
