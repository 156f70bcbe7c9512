"""`pump redrive`: dead letters that are chosen by SQL, sent again."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from math import isfinite
from pathlib import Path
from typing import Any, TypeVar

import attrs
import click
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TaskProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)

from ..app import App
from ..event_loop import on_signal
from ..exit_codes import ExitCode
from ..ports import Gateway
from ..redrive.folder import Plan, QueueFolder, RedriveCounts, default_folder, opened, place_of
from ..redrive.rows import LedgerRows
from ..redrive.run import PreparedRun, Stopped, finish, left_of, move, prepare
from ..redrive.selection import Selector
from ..stores.ledger.buffered_ledger import BufferedLedger
from ..stores.ledger.reading import DEFAULT_FILE, DEFAULT_FOLDER
from .console import print_json, print_warning, printable, stderr, stdout, table
from .options import app_option, gateway_option, json_option
from .session import app_for, in_session

# Redriving: what `pump redrive` does once its options are known, with the parts that
# `pump spark redrive` shares.

_BATCH = 100


@attrs.frozen(kw_only=True)
class RedriveOptions:
    """The options of a redrive."""

    queue: str
    to: str
    where: str
    dry_run: bool = False
    rate: float | None = None
    limit: int | None = None
    ledger: str | None = None
    run: str | None = None
    as_json: bool = False

    def plan(self, gateway: str) -> Plan:
        """What the engine is asked for."""
        return Plan(
            gateway=place_of(gateway),
            queue=self.queue,
            target=self.to,
            where=self.where,
            limit=self.limit,
        )

    def folder(self, plan: Plan) -> Path:
        """Where its runs are."""
        return default_folder(plan) if self.run is None else Path(self.run)


Send = Callable[
    [PreparedRun, asyncio.Event, Callable[[RedriveCounts], None]], Awaitable[RedriveCounts]
]
"""Moves what is prepared, and returns what was done."""


def redrive_here(asked: RedriveOptions, app: str | None, gateway: str | None) -> ExitCode:
    """Redrive in this process, with DuckDB."""
    from ..redrive.selection import DuckdbSelector

    found = app_for(app, gateway)
    plan = asked.plan(found.gateway_url or found.gateway_name)
    ledger = ledger_of(asked.ledger, found)
    # Its rows are written by the redrive itself, which must know when they are on the disk.
    with opened(asked.folder(plan), plan) as folder:

        async def work(it: App) -> ExitCode:
            async def send(
                prepared: PreparedRun,
                stopping: asyncio.Event,
                on_moved: Callable[[RedriveCounts], None],
            ) -> RedriveCounts:
                task = prepared.task(rate=asked.rate, batch=_BATCH)
                name = it.gateway.capabilities.gateway
                async with LedgerRows(ledger, name) as rows:
                    mover = await move(
                        it.gateway, prepared, task, rows=rows, stopping=stopping, on_moved=on_moved
                    )
                if mover.is_full:
                    warn_of_limit(mover.counts.held, plan)
                return mover.counts

            return await conduct(it.gateway, folder, plan, DuckdbSelector(), asked, send)

        return in_session(found, work)


def ledger_of(where: str | None, app: App) -> BufferedLedger:
    """The ledger that was named, or the app's own, or the one that is there."""
    from ..stores.ledger.reading import ledger_from

    if where is None and isinstance(app.ledger, BufferedLedger):
        return app.ledger
    there = [each for each in (DEFAULT_FILE, DEFAULT_FOLDER) if each.exists()]
    ledger = ledger_from(where if where is not None else (there or [DEFAULT_FILE])[0])
    assert isinstance(ledger, BufferedLedger)
    return ledger


async def conduct(
    gateway: Gateway,
    folder: QueueFolder,
    plan: Plan,
    selector: Selector,
    asked: RedriveOptions,
    send: Send,
) -> ExitCode:
    """Prepare, show, send and sum up; signals stop it between two batches."""
    stopping = asyncio.Event()
    with _stopped_by_signals(stopping):
        try:
            with stderr().status("looking at the dead letters") as status:
                prepared = await prepare(
                    gateway,
                    folder,
                    plan,
                    selector,
                    stopping=stopping,
                    on_seen=lambda count: status.update(f"{count:,} dead letters seen"),
                )
        except Stopped:
            print_warning("interrupted while looking: nothing was sent")
            return ExitCode.FORCED
        warn(prepared, counts_deliveries=not gateway.capabilities.has_peek)
        if asked.dry_run:
            return await _show_only(prepared, asked)
        if not asked.as_json:
            show(prepared, is_dry=False)
        return await _send(prepared, stopping, asked, send)


async def _show_only(prepared: PreparedRun, asked: RedriveOptions) -> ExitCode:
    if asked.as_json:
        show_json(prepared)
    else:
        show(prepared, is_dry=True)
    if not prepared.is_resumed:
        await asyncio.to_thread(prepared.run.remove)
    return ExitCode.OK


async def _send(
    prepared: PreparedRun, stopping: asyncio.Event, asked: RedriveOptions, send: Send
) -> ExitCode:
    with progress(prepared) as bar:
        try:
            counts = await send(prepared, stopping, bar.moved)
        except BaseException:
            print_warning(_how_to_go_on(prepared))
            raise
    left = await asyncio.to_thread(left_of, prepared)
    if stopping.is_set() and left:
        summarise(prepared, counts, left.unsent, as_json=asked.as_json)
        print_warning(f"interrupted: {_how_to_go_on(prepared)}")
        return ExitCode.FORCED
    await asyncio.to_thread(finish, prepared, counts)
    summarise(prepared, counts, left.unsent, as_json=asked.as_json)
    if left.unsent > counts.refused:
        warn_of_missing(left.unsent - counts.refused, prepared.plan)
    if left.unremoved:
        warn_of_unremoved(left.unremoved, prepared.plan)
    return ExitCode.BROKER if left.unsent else ExitCode.OK


def warn_of_unremoved(count: int, plan: Plan) -> None:
    """Some that were sent before did not come again."""
    print_warning(
        f"{count:,} that were sent before did not come again: they have left {plan.queue!r}, or "
        "another consumer holds them; should they come, the same command removes them, and sends "
        "nothing"
    )


def warn_of_missing(count: int, plan: Plan) -> None:
    """Some of what was selected did not come."""
    print_warning(
        f"{count:,} of the selected were not met in {plan.queue!r}: another consumer took them, or "
        "they wait behind messages of their group that are not selected (FIFO queues); look at "
        "what is there, and run the same command again"
    )


def warn_of_limit(held_count: int, plan: Plan) -> None:
    """The broker gives no more while so many are held."""
    print_warning(
        f"{plan.queue!r} gives no more while {held_count:,} messages that are not selected are "
        "held (SQS: 120,000 in flight, 20,000 of a FIFO queue); run the same command again, or "
        "select more"
    )


def _how_to_go_on(prepared: PreparedRun) -> str:
    return (
        "nothing is lost, and the same command goes on where this one ended (its record is in "
        f"{prepared.run.path})"
    )


@contextmanager
def _stopped_by_signals(stopping: asyncio.Event) -> Iterator[None]:
    """The first signal stops between two batches, the second one at once."""
    task = asyncio.current_task()

    def stop() -> None:
        if stopping.is_set() and task is not None:
            task.cancel()
        stopping.set()

    try:
        with on_signal(stop):
            yield
    except asyncio.CancelledError:
        if stopping.is_set():
            raise KeyboardInterrupt from None
        raise


# What a redrive shows: the selection, how far it is, and what came of it.

_MAX_DETAIL = 100


def show(prepared: PreparedRun, *, is_dry: bool) -> None:
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


def show_json(prepared: PreparedRun) -> None:
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


def warn(prepared: PreparedRun, *, counts_deliveries: bool) -> None:
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


def summarise(prepared: PreparedRun, counts: RedriveCounts, left: int, *, as_json: bool) -> None:
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

    def moved(self, counts: RedriveCounts) -> None:
        """So many are done."""
        self._bar.update(self._task, completed=counts.removed + counts.refused)


@contextmanager
def progress(prepared: PreparedRun) -> Iterator[Bar]:
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


def _examples(prepared: PreparedRun) -> object:
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


def _document(prepared: PreparedRun) -> dict[str, Any]:
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


# The options that `pump redrive` and `pump spark redrive` share.

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


@click.command(short_help="Send selected dead letters again.")
@redrive_options
@app_option
@gateway_option
def redrive(
    queue: str,
    *,
    to: str,
    where: str,
    dry_run: bool,
    rate: float | None,
    limit: int | None,
    ledger: str | None,
    run: str | None,
    as_json: bool,
    app: str | None,
    gateway: str | None,
) -> ExitCode:
    """Send the dead letters of QUEUE for which WHERE holds to another queue, and remove them.

    A snapshot of the queue is taken and the condition run over it (DuckDB); then each selected
    message is sent, recorded in the run's folder and in the ledger, and only then removed. What
    is not selected stays. Stopped or killed at any moment, the same command goes on where it
    was: none is lost, and none is sent twice but for a batch whose answer was cut off, and not
    even that where the target de-duplicates.

    \b
    Columns of WHERE:
      id, type, reason, detail, attempts, rejected_at, original_queue, created_at,
      body (text), body_bytes, content_type, correlation_id, message_group, headers['name']

    \b
    Examples:
      pump redrive orders-dead --to orders --where "type = 'PlaceOrder'" --dry-run
      pump redrive orders-dead --to orders --where "detail LIKE '%Timeout%'" --rate 50
      pump redrive orders-dead --to orders --where "rejected_at > now() - INTERVAL 1 DAY"
      pump redrive orders-dead --to orders --where TRUE --limit 100

    \b
    Exit codes:
      0 all selected were sent   2 wrong usage   3 a setting cannot work, such as WHERE
      4 broker unreachable, queue missing, or some were not sent
      130 interrupted: the same command goes on
    """
    asked = RedriveOptions(
        queue=queue,
        to=to,
        where=where,
        dry_run=dry_run,
        rate=rate,
        limit=limit,
        ledger=ledger,
        run=run,
        as_json=as_json,
    )
    return redrive_here(asked, app, gateway)
