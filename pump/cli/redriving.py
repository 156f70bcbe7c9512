"""Redriving: what `pump redrive` does once its options are known, with the parts that
`pump spark redrive` shares.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import attrs

from ..app import App
from ..ports import Gateway
from ..redrive.counts import Counts
from ..redrive.folder import QueueFolder, default_folder, opened
from ..redrive.plan import Plan, place_of
from ..redrive.rows import LedgerRows
from ..redrive.run import Prepared, Stopped, finish, left_of, move, prepare
from ..redrive.selection import Selector
from ..signal_handling import on_signal
from ..stores.ledger.buffered_ledger import BufferedLedger
from ..stores.ledger.locating import DEFAULT_FILE, DEFAULT_FOLDER
from .console import print_warning, stderr
from .exit_codes import ExitCode
from .redrive_report import progress, show, show_json, summarise, warn
from .session import app_for, in_session

_BATCH = 100


@attrs.frozen(kw_only=True)
class Asked:
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


Send = Callable[[Prepared, asyncio.Event, Callable[[Counts], None]], Awaitable[Counts]]
"""Moves what is prepared, and returns what was done."""


def redrive_here(asked: Asked, app: str | None, gateway: str | None) -> ExitCode:
    """Redrive in this process, with DuckDB."""
    from ..redrive.duckdb_selector import DuckdbSelector

    found = app_for(app, gateway)
    plan = asked.plan(found.gateway_url or found.gateway_name)
    ledger = ledger_of(asked.ledger, found)
    # Its rows are written by the redrive itself, which must know when they are on the disk.
    with opened(asked.folder(plan), plan) as folder:

        async def work(it: App) -> ExitCode:
            async def send(
                prepared: Prepared, stopping: asyncio.Event, on_moved: Callable[[Counts], None]
            ) -> Counts:
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
    from ..stores.ledger.locating import ledger_from

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
    asked: Asked,
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


async def _show_only(prepared: Prepared, asked: Asked) -> ExitCode:
    if asked.as_json:
        show_json(prepared)
    else:
        show(prepared, is_dry=True)
    if not prepared.is_resumed:
        await asyncio.to_thread(prepared.run.remove)
    return ExitCode.OK


async def _send(prepared: Prepared, stopping: asyncio.Event, asked: Asked, send: Send) -> ExitCode:
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
        "somebody holds them; should they come, the same command removes them, and sends nothing"
    )


def warn_of_missing(count: int, plan: Plan) -> None:
    """Some of what was selected did not come."""
    print_warning(
        f"{count:,} of the selected were not met in {plan.queue!r}: somebody else took them, or "
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


def _how_to_go_on(prepared: Prepared) -> str:
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
