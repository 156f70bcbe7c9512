"""What a redrive shows: the selection, how far it is, and what came of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any

import attrs
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TaskProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)

from ..redrive.counts import Counts
from ..redrive.run import Prepared
from .console import print_json, print_warning, printable, stderr, stdout, table

_MAX_DETAIL = 100


def show(prepared: Prepared, *, is_dry: bool) -> None:
    """Print what would be sent, or is about to be."""
    console, picture, plan = stdout(), prepared.picture, prepared.plan
    verb = "Would send" if is_dry else "Sending"
    again = " (going on with an interrupted run)" if prepared.is_resumed else ""
    console.print(
        f"{verb} {picture.count:,} of {prepared.seen_count:,} dead letter(s) in {plan.queue!r} to "
        f"{plan.target!r}{again}.",
        soft_wrap=True,
    )
    if not picture.count:
        return
    console.print(f"Rejected from {_moment(picture.oldest)} to {_moment(picture.newest)} UTC.")
    rows = [[printable(kind), printable(why), f"{count:,}"] for kind, why, count in picture.groups]
    console.print(table(["type", "reason", "messages"], rows, right=["messages"]))
    if is_dry:
        console.print("First of them:")
        console.print(_examples(prepared))


def show_json(prepared: Prepared) -> None:
    """The same as a document."""
    picture = prepared.picture
    print_json(
        {
            **_document(prepared),
            "would_send": picture.count,
            "oldest": _iso(picture.oldest),
            "newest": _iso(picture.newest),
            "groups": [
                {"type": kind, "reason": why, "count": count} for kind, why, count in picture.groups
            ],
            "examples": [
                {
                    name: _iso(value) if isinstance(value, datetime) else value
                    for name, value in each.items()
                    if name != "entry"
                }
                for each in picture.examples
            ],
        }
    )


def warn(prepared: Prepared, *, counts_deliveries: bool) -> None:
    """Say what the look has cost, and what it could not see."""
    if counts_deliveries and not prepared.is_resumed and prepared.seen_count:
        print_warning(
            f"this broker cannot be asked without receiving: the look counts as one delivery of "
            f"each of the {prepared.seen_count:,} message(s)"
        )
    if prepared.hidden_count:
        print_warning(
            f"the broker has about {prepared.hidden_count:,} more message(s) in this queue and did "
            "not show them (SQS shows 120,000 at once, and of a FIFO queue the first of each "
            "group); run the same command again for the rest"
        )


def summarise(prepared: Prepared, counts: Counts, left: int, *, as_json: bool) -> None:
    """Print what came of it."""
    if as_json:
        numbers = {**attrs.asdict(counts), "left": left}
        print_json({**_document(prepared), **numbers})
        return
    plan = prepared.plan
    parts = [f"sent {counts.sent:,}", f"removed {counts.removed:,}"]
    if counts.held:
        parts.append(f"left {counts.held:,} untouched")
    stdout().print(
        f"Redrive of {plan.queue!r} to {plan.target!r}: {', '.join(parts)}.", soft_wrap=True
    )
    if counts.repeated:
        print_warning(
            f"{counts.repeated:,} were sent again because an earlier send had no answer: they may "
            f"be in {plan.target!r} twice, unless it de-duplicates"
        )
    if counts.refused:
        print_warning(
            f"{counts.refused:,} were not accepted and are still in {plan.queue!r}; the first, "
            f"{counts.first_refusal}"
        )


class Bar:
    """A bar that is told what was done."""

    def __init__(self, bar: Progress, task: TaskID) -> None:
        self._bar = bar
        self._task = task

    def moved(self, counts: Counts) -> None:
        """So many are done."""
        self._bar.update(self._task, completed=counts.removed + counts.refused)


@contextmanager
def progress(prepared: Prepared) -> Iterator[Bar]:
    """A bar on stderr while it lasts, on a terminal."""
    console = stderr()
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TaskProgressColumn(show_speed=True),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        yield Bar(bar, bar.add_task("redriving", total=prepared.picture.count))


def _examples(prepared: Prepared) -> object:
    columns = ["id", "type", "reason", "rejected at", "detail"]
    rows = [
        [
            printable(each["id"]),
            printable(each["type"] or ""),
            printable(each["reason"] or ""),
            _moment(each["rejected_at"]),
            printable((each["detail"] or "")[:_MAX_DETAIL]),
        ]
        for each in prepared.picture.examples
    ]
    return table(columns, rows)


def _document(prepared: Prepared) -> dict[str, Any]:
    plan = prepared.plan
    return {
        "queue": plan.queue,
        "to": plan.target,
        "where": plan.where,
        "run": str(prepared.run.path),
        "is_resumed": prepared.is_resumed,
        "seen": prepared.seen_count,
        "selected": prepared.selected_count,
    }


def _moment(moment: datetime | None) -> str:
    return "an unknown time" if moment is None else moment.strftime("%Y-%m-%d %H:%M:%S")


def _iso(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat()
