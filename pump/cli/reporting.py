"""Reporting: the work of `pump report` and `pump spark report`."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs
import click

from ..app import App
from ..clock import SYSTEM_CLOCK
from ..errors import ConfigurationError
from ..report.engine import MakeEngine
from ..report.job import Report, ReportOptions, run_report
from ..report.markup import moment, plural, seconds, share
from ..report.output import WORK_PREFIX, claim
from ..report.queries import ALL_TYPES
from ..report.scope import Scope
from ..report.snapshot import take_snapshot
from ..report.tables import BY_NAME, Kind
from ..stores.ledger.locating import DEFAULT_FILE, DEFAULT_FOLDER, locate
from .console import print_json, print_warning, printable, stderr, stdout
from .ledger_report import iso, since

_MAX_CLUSTERS = 5
_MAX_JSON_CLUSTERS = 20
_MAX_PATTERN = 100
_MAX_WARNINGS = 20
Say = Callable[[str], None]


@attrs.frozen(kw_only=True)
class Asked:
    """The options of a report."""

    ledger: str | None
    dead_letters: tuple[str, ...]
    since: str
    until: str | None
    types: tuple[str, ...]
    out: Path
    force: bool
    is_opened: bool
    app: str | None
    gateway: str | None
    as_json: bool

    def check(self) -> None:
        """Raise for what can never work."""
        self.scope()
        if self.found_ledger() is None and not self.dead_letters:
            raise ConfigurationError(
                "ledger",
                str(DEFAULT_FILE),
                "there is no ledger here; name one (--ledger PATH), start one (pump run app:app "
                "--ledger PATH), or name a queue (--dead-letters QUEUE)",
            )
        claim(self.out, force=self.force)

    def scope(self) -> Scope:
        """Which outcomes."""
        now_us = round(SYSTEM_CLOCK.time_s() * 1e6)
        until_us = None if self.until is None else _until(self.until, now_us)
        return Scope(since_us=since(self.since, now_us), until_us=until_us, types=self.types)

    def found_ledger(self) -> str | None:
        """The ledger that was named, or one where they are looked for."""
        if self.ledger is None:
            found = [path for path in (DEFAULT_FILE, DEFAULT_FOLDER) if path.exists()]
            return str(found[0]) if found else None
        if not locate(self.ledger).path.exists():
            raise ConfigurationError(
                "ledger",
                self.ledger,
                f"there is no such ledger; start one: pump run app:app --ledger {self.ledger}",
            )
        return self.ledger


def print_made(asked: Asked, make_engine: MakeEngine) -> None:
    """Make the report, and say what is in it."""
    asked.check()
    with (
        _progress() as say,
        tempfile.TemporaryDirectory(prefix=WORK_PREFIX, dir=asked.out) as folder,
    ):
        options = ReportOptions(
            out=asked.out,
            ledger=asked.found_ledger(),
            dead_letters=_snapshot(asked, Path(folder), say),
            scope=asked.scope(),
            force=asked.force,
        )
        made = run_report(options, make_engine, progress=say)
    if asked.as_json:
        print_json(as_document(made))
    else:
        _print_summary(made)
    for path, why in made.skipped[:_MAX_WARNINGS]:
        print_warning(f"{path} was skipped: {why}")
    if asked.is_opened:
        click.launch(str(made.page.resolve()))


def as_document(made: Report) -> dict[str, Any]:
    """The report as JSON has it."""
    return {
        "page": str(made.page),
        "totals": _document("totals", made.results["totals"][0]),
        "clusters": [
            _document("clusters", row) for row in made.results["clusters"][:_MAX_JSON_CLUSTERS]
        ],
        "tables": {name: len(rows) for name, rows in made.results.items()},
        "skipped": [{"path": path, "why": why} for path, why in made.skipped],
        "seconds": {name: round(taken_s, 3) for name, taken_s in made.timings.items()},
    }


def _document(name: str, row: tuple[Any, ...]) -> dict[str, Any]:
    columns = BY_NAME[name].columns
    return {
        column.name: iso(value) if column.kind is Kind.TIME and value is not None else value
        for column, value in zip(columns, row, strict=True)
    }


def _until(text: str, now_us: int) -> int:
    try:
        if text != "all":
            return since(text, now_us)
    except click.BadParameter:
        pass
    raise click.BadParameter(
        f"{text!r} is no duration (1h, 7d) and no date (2026-11-16)", param_hint="--until"
    )


def _snapshot(asked: Asked, folder: Path, say: Say) -> Path | None:
    if not asked.dead_letters:
        return None
    from .session import app_for, in_session

    path = folder / "snapshot.parquet"

    def progress(queue: str, count: int) -> None:
        say(f"looking into {printable(queue)}: {plural(count, 'message')}")

    async def work(app: App) -> int:
        return await take_snapshot(app.gateway, asked.dead_letters, path, progress=progress)

    in_session(app_for(asked.app, asked.gateway), work)
    return path


@contextmanager
def _progress() -> Iterator[Say]:
    """Tells the steps on stderr: in one line that changes on a terminal, else line by line."""
    console = stderr()
    if not console.is_terminal:
        yield _line_by_line(console.print)
        return
    with console.status("starting") as status:
        yield lambda step: status.update(step)


def _line_by_line(show: Callable[..., object]) -> Say:
    told: set[str] = set()

    def say(step: str) -> None:
        # Of a count that grows, once is enough.
        what = step.partition(":")[0]
        if what not in told:
            told.add(what)
            show(f"{what} …")

    return say


def _print_summary(made: Report) -> None:
    for line in _summary(made):
        stdout().print(line, soft_wrap=True)


def _summary(made: Report) -> Iterator[str]:
    totals: dict[str, Any] = made.totals
    if totals["deliveries"]:
        period = f"{moment(totals['first_seen'])} to {moment(totals['last_seen'])} UTC"
        yield (
            f"{plural(totals['messages'], 'message')} in {totals['deliveries']:,} deliveries, "
            f"{period}"
        )
        yield (
            f"{totals['processed']:,} processed, {totals['retrying']:,} retrying, "
            f"{totals['dead_lettered']:,} dead-lettered, {totals['discarded']:,} discarded, "
            f"{totals['lease_lost']:,} lease lost: failure rate {share(totals['failure_rate'])}"
        )
    else:
        yield "No outcomes in this stretch of time."
    for row in made.results["latency"]:
        if row[:2] == ("run_s", ALL_TYPES):
            yield f"handlers: p50 {seconds(row[4])}, p90 {seconds(row[5])}, p99 {seconds(row[6])}"
    if totals["dead_letters"]:
        yield f"{plural(totals['dead_letters'], 'dead letter')} in the queues"
    if made.results["clusters"]:
        yield f"{totals['clusters']:,} kinds of failure, the most frequent:"
    for row in made.results["clusters"][:_MAX_CLUSTERS]:
        yield f"  {row[2]:>9,}  {share(row[3]):>8}  {printable(row[1])[:_MAX_PATTERN]}"
    yield f"report: {made.page}"
