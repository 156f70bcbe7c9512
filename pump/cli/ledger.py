"""`pump ledger`: what became of messages, from the ledger that a pump wrote."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import attrs
import click
from rich.console import Console
from rich.text import Text

from ..clock import SYSTEM_CLOCK, format_duration, parse_duration
from ..errors import ConfigurationError
from ..stores.ledger.reading import DEFAULT_FILE, DEFAULT_FOLDER, locate, reader_from
from ..stores.ledger.rows import LedgerStatus, Row
from ..stores.ledger.tally import NO_FAILURES, PROCESSED, LedgerTally, Query
from .console import ASCII, BLOCKS, bars, printable, rate, table
from .options import json_option, since_option, types_option

STATUSES = ["processed", "retrying", "dead-lettered", "discarded", "lease-lost", "redriven"]


@click.command(short_help="Show what became of messages.")
@click.argument("path", metavar="[PATH]", required=False)
@since_option("1d")
@click.option("--queue", "queues", metavar="NAME", multiple=True, help="Only this queue.")
@types_option
@click.option("--reason", "reasons", metavar="NAME", multiple=True, help="Only this reason.")
@click.option(
    "--status", "statuses", type=click.Choice(STATUSES), multiple=True, help="Only this status."
)
@click.option(
    "--limit",
    type=click.IntRange(1, 10_000),
    default=10,
    help="How many types, reasons, handlers and failures to show. Default: 10.",
)
@json_option
def ledger(
    path: str | None,
    *,
    since: str,
    queues: tuple[str, ...],
    types: tuple[str, ...],
    reasons: tuple[str, ...],
    statuses: tuple[str, ...],
    limit: int,
    as_json: bool,
) -> None:
    """Show what became of messages: rates by type and reason, the slowest handlers, the last
    failures, and a chart of them over time.

    PATH is a SQLite file, a folder of Parquet files or a postgres:// URL, that `pump run --ledger
    PATH` or App(ledger=…) has written; by default .pumphouse/ledger.db, else .pumphouse/ledger. It
    may be read while pumps write it. Filters may be repeated; times are UTC.

    \b
    Examples:
      pump ledger
      pump ledger /var/lib/shop/ledger --since 1h
      pump ledger --status dead-lettered --type PlaceOrder --limit 50
      pump ledger --since 2026-11-16 --json | jq '.failures[].detail'
    """
    print_ledger(
        LedgerOptions(
            path=path,
            since=since,
            queues=queues,
            types=types,
            reasons=reasons,
            statuses=statuses,
            limit=limit,
        ),
        as_json=as_json,
    )


# The report of `pump ledger`: what to read, and what the counts come to.

_SLOT_LENGTHS_S = (
    *(1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 10_800, 21_600, 43_200),
    *(86_400 * days for days in (1, 2, 7, 14, 30, 90, 365)),
)
MAX_SLOTS = 60
SHARES = (0.5, 0.95, 0.99)


@attrs.frozen(kw_only=True)
class LedgerOptions:
    """The options of `pump ledger`."""

    path: str | None
    since: str
    queues: tuple[str, ...] = ()
    types: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()
    statuses: tuple[str, ...] = ()
    limit: int = 10


@attrs.frozen(kw_only=True)
class LedgerSummary:
    """What a ledger says about a stretch of time."""

    path: str | None
    """None when no ledger was found."""
    is_empty: bool
    """Whether it has no rows at all, asked for or not."""
    start_us: int
    end_us: int
    query: Query
    tally: LedgerTally
    limit: int

    @property
    def span_s(self) -> float:
        """How long the stretch is."""
        return max((self.end_us - self.start_us) / 1e6, 1.0)

    @property
    def slot_s(self) -> float:
        """How long one slot of `series` is."""
        return self.query.slot_us / 1e6

    def statuses(self) -> dict[str, int]:
        """How often each status was met."""
        counts: Counter[str] = Counter()
        for (_, status, _), count in self.tally.outcomes.items():
            counts[status] += count
        return {status.value: counts[status.value] for status in LedgerStatus}

    def types(self) -> list[tuple[str, Counter[str]]]:
        """Counts by status of each type, the most frequent first."""
        counts: dict[str, Counter[str]] = {}
        for (type_, status, _), count in self.tally.outcomes.items():
            counts.setdefault(type_, Counter())[status] += count
        return sorted(counts.items(), key=lambda each: (-each[1].total(), each[0]))

    def reasons(self) -> list[tuple[tuple[str, str, str], int]]:
        """Type, status and reason of what was not processed, the most frequent first."""
        found = [each for each in self.tally.outcomes.items() if each[0][1] not in NO_FAILURES]
        return sorted(found, key=lambda each: (-each[1], each[0]))

    def handlers(self) -> list[tuple[str, int, list[float]]]:
        """Type, number of runs, and p50, p95, p99 and longest, the slowest first."""
        runs: Counter[str] = Counter()
        for (type_, _), count in self.tally.runs.items():
            runs[type_] += count
        times = [
            (type_, count, [*self.tally.percentiles_s(type_, *SHARES), longest_s])
            for type_, count in runs.items()
            for longest_s in [self.tally.longest_s[type_]]
        ]
        return sorted(times, key=lambda each: (-each[2][1], each[0]))

    def series(self) -> tuple[list[int], list[int]]:
        """Processed and failed, slot by slot."""
        query = self.query
        slots = range((self.end_us - query.origin_us) // query.slot_us + 1)
        processed, failed = Counter[int](), Counter[int]()
        for (slot, status), count in self.tally.slots.items():
            if status == PROCESSED:
                processed[slot] += count
            elif status not in NO_FAILURES:
                failed[slot] += count
        # Rows that a clock ahead of ours has dated in the future count in the last slot.
        return tuple(  # type: ignore[return-value]
            [
                counts[slot] if slot < slots[-1] else sum(counts[at] for at in counts if at >= slot)
                for slot in slots
            ]
            for counts in (processed, failed)
        )


def print_ledger(asked: LedgerOptions, *, as_json: bool) -> None:
    """Read a ledger and print what it says."""
    from .console import print_json, print_warning, stdout

    console = stdout()
    report = make_report(asked, max_slots=MAX_SLOTS if as_json else slot_count(console))
    if as_json:
        print_json(as_document(report))
    else:
        print_report(report, console)
    for path, why in report.tally.skipped[:MAX_SLOTS]:
        print_warning(f"{path} was skipped: {why}")


def make_report(asked: LedgerOptions, *, max_slots: int) -> LedgerSummary:
    """Read the ledger that was asked for."""
    end_us = round(SYSTEM_CLOCK.time_s() * 1e6)
    since_us = since(asked.since, end_us)
    path = _path(asked.path)
    reader = None if path is None else reader_from(path)
    oldest_us = None if reader is None else reader.oldest_us()
    start_us = since_us if oldest_us is None else max(since_us, oldest_us)
    slot_us = _slot_us(max(end_us - start_us, 0), max_slots)
    query = Query(
        since_us=start_us,
        origin_us=start_us - start_us % slot_us,
        slot_us=slot_us,
        max_failures=asked.limit,
        queues=asked.queues,
        types=asked.types,
        reasons=asked.reasons,
        statuses=asked.statuses,
    )
    return LedgerSummary(
        path=None if path is None else locate(path).shown,
        is_empty=oldest_us is None,
        start_us=start_us,
        end_us=max(end_us, start_us),
        query=query,
        tally=LedgerTally() if reader is None else reader.tally(query),
        limit=asked.limit,
    )


def since(text: str, now_us: int) -> int:
    """What `--since` means."""
    if text == "all":
        return 0
    try:
        return max(0, now_us - parse_duration(text) // timedelta(microseconds=1))
    except ValueError:
        pass
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise click.BadParameter(
            f"{text!r} is no duration (1h, 7d), no date (2026-11-16) and not `all`",
            param_hint="--since",
        ) from None
    aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return max(0, round(aware.timestamp() * 1e6))


def as_document(report: LedgerSummary) -> dict[str, Any]:
    """The report as JSON has it."""
    processed, failed = report.series()
    starts = [report.query.origin_us + n * report.query.slot_us for n in range(len(processed))]
    return {
        "ledger": report.path,
        "since": iso(report.start_us),
        "until": iso(report.end_us),
        "rows": report.tally.row_count,
        "statuses": report.statuses(),
        "types": [
            {"type": type_, "rate_per_s": counts.total() / report.span_s, **_by_status(counts)}
            for type_, counts in report.types()[: report.limit]
        ],
        "reasons": [
            {
                "type": type_,
                "status": status,
                "reason": reason or None,
                "count": count,
                "rate_per_s": count / report.span_s,
            }
            for (type_, status, reason), count in report.reasons()[: report.limit]
        ],
        "handlers": [
            {"type": type_, "runs": runs}
            | dict(zip(("p50_s", "p95_s", "p99_s", "max_s"), times, strict=True))
            for type_, runs, times in report.handlers()[: report.limit]
        ],
        "failures": [_row_document(row) for row in report.tally.failures],
        "slots": {
            "length_s": report.slot_s,
            "counts": [
                {"start": iso(start), "processed": good, "failed": bad}
                for start, good, bad in zip(starts, processed, failed, strict=True)
            ],
        },
        "skipped": [{"path": path, "why": why} for path, why in report.tally.skipped],
    }


def iso(time_us: int) -> str:
    """A moment, in UTC, to the microsecond."""
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=time_us)
    return moment.isoformat(timespec="microseconds").replace("+00:00", "Z")


def _by_status(counts: Counter[str]) -> dict[str, int]:
    return {status.value: counts[status.value] for status in LedgerStatus}


def _row_document(row: Row) -> dict[str, Any]:
    return {**row._asdict(), "time": iso(row.time)}


def _path(asked: str | None) -> str | None:
    if asked is None:
        found = [path for path in (DEFAULT_FILE, DEFAULT_FOLDER) if path.exists()]
        return str(found[0]) if found else None
    location = locate(asked)
    if not location.may_be_there:
        remedy = f"there is no ledger; start one: pump run app:app --ledger {asked}"
        raise ConfigurationError("PATH", location.shown, remedy)
    return asked


def _slot_us(span_us: int, max_slots: int) -> int:
    # Two slots more than that, at most: the first begins at a round moment before the span.
    fitting = [each for each in _SLOT_LENGTHS_S if span_us // (each * 1_000_000) <= max_slots]
    return (fitting[0] if fitting else _SLOT_LENGTHS_S[-1]) * 1_000_000


# The report of `pump ledger` for people: a chart and tables, as wide as the terminal is.

_LABEL_WIDTH = 11
_PEAK_WIDTH = 18
_MIN_SLOTS = 8
_HEIGHT = 3
_MAX_DETAIL = 200
"""Characters of a detail on a terminal; in a pipe it is uncut."""
_HEADINGS = {
    LedgerStatus.PROCESSED: "processed",
    LedgerStatus.RETRYING: "retried",
    LedgerStatus.DEAD_LETTERED: "dead-lettered",
    LedgerStatus.DISCARDED: "discarded",
    LedgerStatus.LEASE_LOST: "leases lost",
    LedgerStatus.REDRIVEN: "redriven",
}


def slot_count(console: Console) -> int:
    """How many columns of a chart the console has room for."""
    return max(_MIN_SLOTS, min(MAX_SLOTS, console.width - _LABEL_WIDTH - _PEAK_WIDTH))


def print_report(report: LedgerSummary, console: Console) -> None:
    """Print everything there is to say."""
    if report.path is None or report.is_empty:
        console.print(_nothing_yet(report), soft_wrap=True)
        return
    page = _Page(report, console)
    if not report.tally.row_count:
        console.print(page.shown(_nothing_found(report)), soft_wrap=True)
        return
    page.heading()
    page.chart()
    page.types()
    page.reasons()
    page.handlers()
    page.failures()


class _Page:
    """One report on one console; plain ASCII where the console knows nothing else."""

    def __init__(self, report: LedgerSummary, console: Console) -> None:
        self._report = report
        self._console = console
        self._is_ascii = console.options.ascii_only

    def shown(self, text: str) -> str:
        """The text as this console can show it, on one line."""
        plain = printable(text)
        return plain.encode("ascii", "backslashreplace").decode() if self._is_ascii else plain

    def heading(self) -> None:
        report, dot = self._report, " - " if self._is_ascii else " · "
        parts = [
            self.shown(report.path or ""),
            f"{_moment(report.start_us)} to {_moment(report.end_us)} UTC",
            f"{report.tally.row_count:,} outcome(s)",
        ]
        self._console.print(Text(dot.join(parts), "bold"), soft_wrap=True)

    def chart(self) -> None:
        processed, failed = self._report.series()
        self._console.print()
        self._bars("processed", processed, "green")
        self._bars("failed", failed, "red")
        self._axis(len(processed))

    def types(self) -> None:
        report = self._report
        statuses = [each for each in LedgerStatus if report.statuses()[each]]
        rows: list[list[str | Text]] = [
            [
                self._type(type_),
                rate(counts.total(), report.span_s),
                *(_number(status, counts[status]) for status in statuses),
            ]
            for type_, counts in report.types()
        ]
        headings = [_HEADINGS[status] for status in statuses]
        self._table(["type", "rate", *headings], rows, right=["rate", *headings])

    def reasons(self) -> None:
        rows = [
            [
                self._type(type_),
                status,
                self.shown(reason) or "-",
                f"{count:,}",
                rate(count, self._report.span_s),
            ]
            for (type_, status, reason), count in self._report.reasons()
        ]
        columns = ["failed", "status", "reason", "count", "rate"]
        self._table(columns, rows, right=["count", "rate"])

    def handlers(self) -> None:
        rows = [
            [self._type(type_), f"{runs:,}", *map(_seconds, times)]
            for type_, runs, times in self._report.handlers()
        ]
        columns = ["slowest handlers", "runs", "p50", "p95", "p99", "max"]
        self._table(columns, rows, right=columns[1:])

    def failures(self) -> None:
        rows = [
            [
                _moment(row.time),
                self.shown(row.message_id),
                self._type(row.type),
                self.shown(row.queue),
                f"{row.attempts:,}",
                row.status,
                self.shown(row.reason or "") or "-",
                self._detail(row.detail or ""),
            ]
            for row in self._report.tally.failures
        ]
        columns = ["last failures", "id", "type", "queue", "attempts", "status", "reason", "detail"]
        self._table(columns, rows, right=["attempts"])

    def _bars(self, label: str, counts: Sequence[int], style: str) -> None:
        peak = max(counts)
        *above, last = bars(counts, height=_HEIGHT, levels=ASCII if self._is_ascii else BLOCKS)
        if not peak:
            above = []
        for number, line in enumerate(above):
            note = f"  peak {rate(peak, self._report.slot_s)}" if not number else ""
            self._line(Text.assemble(" " * _LABEL_WIDTH, (line, style), note))
        note = "" if peak else "none"
        self._line(Text.assemble(label.ljust(_LABEL_WIDTH), (last if peak else "", style), note))

    def _axis(self, slots: int) -> None:
        query = self._report.query
        first, last = (_axis_label(query.origin_us + n * query.slot_us) for n in (0, slots - 1))
        gap = " " * max(1, slots - len(first) - len(last))
        each = f"  one column is {format_duration(self._report.slot_s)}"
        self._line(Text(f"{' ' * _LABEL_WIDTH}{first}{gap}{last}"))
        self._line(Text(f"{' ' * (_LABEL_WIDTH - 2)}{each}", "dim"))

    def _line(self, text: Text) -> None:
        self._console.print(text, no_wrap=True, overflow="crop", crop=True)

    def _table(
        self, columns: Sequence[str], rows: Sequence[Sequence[str | Text]], right: Iterable[str]
    ) -> None:
        if not rows:
            return
        limit = self._report.limit
        self._console.print()
        self._console.print(table(columns, rows[:limit], right=right))
        if len(rows) > limit:
            self._console.print(f"and {len(rows) - limit:,} more; see --limit")

    def _type(self, type_: str) -> str:
        return self.shown(type_) or "(none)"

    def _detail(self, detail: str) -> str:
        if self._console.is_terminal and len(detail) > _MAX_DETAIL:
            detail = f"{detail[:_MAX_DETAIL]}{'...' if self._is_ascii else '…'}"
        return self.shown(detail)


def _nothing_yet(report: LedgerSummary) -> str:
    if report.path is None:
        return "There is no ledger here; start one: pump run app:app --ledger .pumphouse/ledger.db"
    path = printable(report.path)
    return f"{path} holds no outcomes yet; a pump writes them: pump run app:app --ledger {path}"


def _nothing_found(report: LedgerSummary) -> str:
    since = _moment(report.start_us)
    return (
        f"No outcomes since {since} UTC are what was asked for; try --since all, or fewer filters."
    )


def _number(status: LedgerStatus, count: int) -> Text:
    is_problem = count and status in (
        LedgerStatus.DEAD_LETTERED,
        LedgerStatus.DISCARDED,
        LedgerStatus.LEASE_LOST,
    )
    return Text(f"{count:,}", "yellow" if is_problem else "")


def _seconds(seconds: float) -> str:
    return format_duration(seconds) if seconds >= 0.0095 else f"{seconds * 1000:.2g}ms"


def _moment(time_us: int) -> str:
    return iso(time_us)[:19].replace("T", " ")


def _axis_label(time_us: int) -> str:
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=time_us)
    return f"{moment:%m-%d %H:%M}"
