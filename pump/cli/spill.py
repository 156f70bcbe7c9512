"""`pump spill`: rejected messages that wait on disk, because their queue was out of reach."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import click
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from ..app import DEFAULT_SPILL, App
from ..clock import SYSTEM_CLOCK
from ..dispatcher import Sweeper, Swept
from ..exit_codes import ExitCode
from ..headers import ORIGINAL_TOPIC, REJECTION_DETAIL, REJECTION_REASON
from ..loading import load_app
from ..stores.spill import SpilledMessage, SpillStore, SqliteSpill, spill_at
from .console import print_json, print_warning, printable, stderr, stdout, table
from .options import app_option, gateway_option, json_option
from .peek import age_of, message_as_json
from .session import app_for, in_session

path_option = click.option(
    "--path",
    metavar="PATH",
    help="The spill's file, or its postgres:// URL. Default: the app's own, else "
    ".pumphouse/spill.db.",
)


@click.group(short_help="Show or send what could not be dead-lettered.")
def spill() -> None:
    """Show or send rejected messages that could not be sent to their dead-letter queue.

    A running app sends them by itself once the queue can be reached again; `flush` does so now.

    \b
    Examples:
      pump spill ls
      pump spill flush --app app:app
      pump spill flush --path /var/lib/shop/spill.db --gateway local:///var/lib/shop/queues
    """


@spill.command("ls")
@path_option
@app_option
@json_option
def ls(*, path: str | None, app: str | None, as_json: bool) -> None:
    """List what waits, oldest first."""
    print_spilled(spill_for(path, app), as_json=as_json)


@spill.command("flush")
@path_option
@app_option
@gateway_option
@json_option
def flush(*, path: str | None, app: str | None, gateway: str | None, as_json: bool) -> ExitCode:
    """Send what waits to the queues it was meant for.

    A message is removed only after its queue has accepted it. Exit code 4 when some remain.
    """
    return flush_spilled(path, app, gateway, as_json=as_json)


# The spill: the work of `pump spill`.


def spill_for(path: str | None, target: str | None) -> SpillStore:
    """The spill that was named, the app's, or the default one."""
    if path is not None:
        return spill_at(path)
    return SqliteSpill(DEFAULT_SPILL) if target is None else load_app(target).spill


def print_spilled(spill: SpillStore, *, as_json: bool) -> None:
    """List what waits."""
    spilled = asyncio.run(_all(spill))
    if as_json:
        print_json([_as_json(each) for each in spilled])
    elif not spilled:
        stdout().print("Nothing is spilled.")
    else:
        columns = ["id", "type", "from", "to", "age", "rejected because", "detail"]
        stdout().print(table(columns, map(_row, spilled), right=["age"]))


def flush_spilled(
    path: str | None, target: str | None, gateway: str | None, *, as_json: bool
) -> ExitCode:
    """Send what waits; every message is tried once."""
    app = app_for(target, gateway)
    spill = spill_for(path, None) if path is not None or target is None else app.spill

    async def work(opened: App) -> tuple[Swept, int]:
        sweeper = Sweeper(spill, opened.gateway, SYSTEM_CLOCK)
        swept = await _sweep_all(sweeper, len(await spill.all()))
        return swept, len(await spill.all())

    swept, left_count = in_session(app, work)
    if as_json:
        print_json({"sent": swept.sent, "failed": swept.failed, "left": left_count})
    else:
        stdout().print(f"Sent {swept.sent:,} message(s); {left_count:,} left.")
    if left_count:
        print_warning(_why_left(swept, left_count))
        return ExitCode.BROKER
    return ExitCode.OK


async def _sweep_all(sweeper: Sweeper, count: int) -> Swept:
    sent = failed = 0
    console = stderr()
    columns = TextColumn("sending"), BarColumn(), MofNCompleteColumn()
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as progress:
        bar = progress.add_task("", total=count)
        while sent + failed < count:
            swept = await sweeper.sweep()
            if not swept.sent + swept.failed:
                break
            sent += swept.sent
            failed += swept.failed
            progress.update(bar, completed=sent)
    return Swept(sent, failed)


async def _all(spill: SpillStore) -> Sequence[SpilledMessage]:
    return await spill.all()


def _why_left(swept: Swept, left_count: int) -> str:
    if swept.failed:
        return f"{left_count:,} message(s) could not be sent; the lines above say why"
    return (
        f"{left_count:,} message(s) are being sent by another process, or failed less than 30 s "
        f"ago; try again in 30 s"
    )


def _row(spilled: SpilledMessage) -> list[str]:
    headers = spilled.message.headers
    return [
        printable(spilled.message.id),
        printable(spilled.message.type),
        printable(headers.get(ORIGINAL_TOPIC, "")),
        printable(spilled.destination),
        age_of(spilled.spilled_at_s),
        printable(headers.get(REJECTION_REASON, "")),
        printable(headers.get(REJECTION_DETAIL, "")),
    ]


def _as_json(spilled: SpilledMessage) -> dict[str, object]:
    return {
        "destination": spilled.destination,
        "spilled_at_s": spilled.spilled_at_s,
        "message": message_as_json(spilled.message),
    }
