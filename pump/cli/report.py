"""`pump report`: what became of messages, as tables and one page, on this machine."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import attrs
import click

from ..app import App
from ..clock import SYSTEM_CLOCK
from ..errors import ConfigurationError
from ..report.charts import moment, plural, seconds, share
from ..report.engine import MakeEngine
from ..report.job import WORK_PREFIX, Report, ReportOptions, claim, run_report
from ..report.queries import ALL_TYPES
from ..report.snapshot import take_snapshot
from ..report.source import ReportScope
from ..report.tables import BY_NAME, ValueKind
from ..stores.ledger.reading import DEFAULT_FILE, DEFAULT_FOLDER, locate
from .console import print_json, print_warning, printable, stderr, stdout
from .ledger import iso, since
from .options import app_option, gateway_option, json_option, since_option, types_option

# Reporting: the work of `pump report` and `pump spark report`.

_MAX_CLUSTERS = 5
_MAX_JSON_CLUSTERS = 20
_MAX_PATTERN = 100
_MAX_WARNINGS = 20
Say = Callable[[str], None]


@attrs.frozen(kw_only=True)
class ReportOptionsGiven:
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

    def scope(self) -> ReportScope:
        """Which outcomes."""
        now_us = round(SYSTEM_CLOCK.time_s() * 1e6)
        until_us = None if self.until is None else _until(self.until, now_us)
        return ReportScope(since_us=since(self.since, now_us), until_us=until_us, types=self.types)

    def found_ledger(self) -> str | None:
        """The ledger that was named, or one where they are looked for."""
        if self.ledger is None:
            found = [path for path in (DEFAULT_FILE, DEFAULT_FOLDER) if path.exists()]
            return str(found[0]) if found else None
        if not locate(self.ledger).may_be_there:
            raise ConfigurationError(
                "ledger",
                self.ledger,
                f"there is no such ledger; start one: pump run app:app --ledger {self.ledger}",
            )
        return self.ledger


def print_made(asked: ReportOptionsGiven, make_engine: MakeEngine) -> None:
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
        column.name: iso(value) if column.kind is ValueKind.TIME and value is not None else value
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


def _snapshot(asked: ReportOptionsGiven, folder: Path, say: Say) -> Path | None:
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


# The options that both commands for reports share.

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
    since_option("7d"),
    click.option("--until", metavar="WHEN", help="Until when, written likewise. Default: no end."),
    types_option,
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


@click.command(short_help="Analyse outcomes and dead letters.")
@report_options
def report(**options: Any) -> None:
    """Analyse what became of messages: volumes and failure rates over time, latency percentiles,
    retries, clusters of like failures, poison messages, and what lies in dead-letter queues.

    Writes one page, report.html, which opens offline, and every table as Parquet beside it. The
    ledger may be read while pumps write it. `pump ledger` shows the last day on the terminal;
    this looks at weeks. For more than one machine can read: pump spark report.

    \b
    Needs: pip install 'pumphouse[report]'.

    \b
    Examples:
      pump report
      pump report --ledger /var/lib/shop/ledger --since 30d --out shop-report --open
      pump report --dead-letters orders-dead --gateway sqs://eu-west-1
      pump report --since 2026-11-01 --until 2026-11-08 --type PlaceOrder
      pump report --json | jq '.clusters[0].pattern'

    \b
    Exit codes:
      0 written   2 wrong usage   3 no ledger, a foreign folder, or DuckDB is missing
      4 broker unreachable, queue missing, or the ledger cannot be read
    """
    from ..report.duckdb_engine import duckdb_engine

    print_made(ReportOptionsGiven(**options), duckdb_engine)
