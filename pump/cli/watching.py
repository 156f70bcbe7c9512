"""Watching: the state of the queues as a table or as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import attrs
from rich.console import RenderableType
from rich.text import Text

from ..app import App
from ..clock import SYSTEM_CLOCK
from ..durations import format_duration
from ..ports import QueueStats
from .console import print_json, print_json_line, printable, stdout, table

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
