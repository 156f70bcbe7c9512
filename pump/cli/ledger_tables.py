"""The report of `pump ledger` for people: a chart and tables, as wide as the terminal is."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta

from rich.console import Console
from rich.text import Text

from ..durations import format_duration
from ..stores.ledger.schema import LedgerStatus
from .console import printable, table
from .ledger_chart import ASCII, BLOCKS, bars, rate
from .ledger_report import MAX_SLOTS, Report, iso

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


def print_report(report: Report, console: Console) -> None:
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

    def __init__(self, report: Report, console: Console) -> None:
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


def _nothing_yet(report: Report) -> str:
    if report.path is None:
        return "There is no ledger here; start one: pump run app:app --ledger .pumphouse/ledger.db"
    path = printable(report.path)
    return f"{path} holds no outcomes yet; a pump writes them: pump run app:app --ledger {path}"


def _nothing_found(report: Report) -> str:
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
