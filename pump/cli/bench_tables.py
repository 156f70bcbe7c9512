"""The report of `pump bench` for people: a chart, a few figures, and what to change."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from ..bench.report import BenchReport, Measured, Spread, series
from ..bench.scratch import Left, removal_hint
from ..durations import format_duration
from .console import ASCII, BLOCKS, bars, print_warning, printable, table

_HEIGHT = 3
_MAX_SLOTS = 60
_MIN_SLOTS = 8
_LABEL = "settled  "
_PEAK_WIDTH = 18


def print_report(report: BenchReport, console: Console) -> None:
    """Print everything there is to say, but for warnings."""
    page = _Page(report, console)
    page.heading()
    page.chart()
    page.figures()
    page.spreads()
    page.suggestions()


def print_left(left: Sequence[Left], gateway: str, where: str) -> None:
    """Say which throw-away queues are still there, and how to be rid of them."""
    for each in left:
        state = "empty" if each.is_empty else "maybe with messages in it"
        why = f" ({each.why})" if each.why else ""
        print_warning(
            f"the queue {each.queue!r} is left, {state}{why}; remove it with: "
            f"{removal_hint(gateway, each.queue, where)}"
        )


class _Page:
    """One report on one console; plain ASCII where the console knows nothing else."""

    def __init__(self, report: BenchReport, console: Console) -> None:
        self._report = report
        self._measured = report.measured
        self._console = console
        self._is_ascii = console.options.ascii_only

    def heading(self) -> None:
        report = self._report
        handler = "its own handlers" if report.handler == "app" else "a handler that does nothing"
        parts = [
            report.app,
            report.gateway,
            f"subscription {report.subscription}",
            handler,
            f"bodies of {report.body_bytes:,} bytes",
        ]
        self._console.print(Text(self._shown(" · ".join(parts)), "bold"), soft_wrap=True)
        if report.settings.options_left_out:
            names = ", ".join(report.settings.options_left_out)
            self._say(f"without the queue's options {names}; see --keep-options")

    def chart(self) -> None:
        slots = max(_MIN_SLOTS, min(_MAX_SLOTS, self._console.width - len(_LABEL) - _PEAK_WIDTH))
        rates = series(self._measured.timeline, self._measured.wall_s, slots)
        if not rates or not max(rates):
            return
        lines = bars(rates, height=_HEIGHT, levels=ASCII if self._is_ascii else BLOCKS)
        labels = [" " * len(_LABEL)] * (len(lines) - 1) + [_LABEL]
        self._console.print()
        for number, (label, line) in enumerate(zip(labels, lines, strict=True)):
            peak = f"  peak {_rate(max(rates))}/s" if not number else ""
            self._console.print(
                Text.assemble(label, (line, "green"), peak), no_wrap=True, crop=True
            )
        each = self._shown(_short(self._measured.wall_s / slots))
        self._console.print(Text(f"{' ' * len(_LABEL)}one column is {each}", "dim"))

    def figures(self) -> None:
        rows = [
            ["messages", _messages(self._measured)],
            ["throughput", f"{_rate(self._measured.throughput)} a second"],
            ["sending", f"{_rate(self._measured.send_rate)} a second"],
            ["processor", _processor(self._measured)],
            ["requests", _requests(self._measured)],
            ["cost", self._cost()],
            ["machine", self._machine()],
        ]
        self._console.print()
        self._console.print(
            table(["measured", ""], [[name, self._shown(text)] for name, text in rows])
        )

    def spreads(self) -> None:
        start = "send" if self._measured.rate is None else "due"
        rows = [
            [name, *_times(spread)]
            for name, spread in (
                (f"{start} to handled", self._measured.latency),
                ("handler", self._measured.run),
            )
            if spread is not None
        ]
        if rows:
            columns = ["time", "p50", "p90", "p99", "max", "mean"]
            self._console.print()
            self._console.print(
                table(columns, [[self._shown(c) for c in row] for row in rows], right=columns[1:])
            )

    def suggestions(self) -> None:
        if not self._report.suggestions:
            return
        rows = [
            [each.setting, self._shown(each.advice), self._shown(each.reason)]
            for each in self._report.suggestions
        ]
        self._console.print()
        self._console.print(table(["change", "to", "because"], rows))

    def _cost(self) -> str:
        cost = self._report.cost
        if cost is None:
            return "not known" if self._report.is_billed else "not billed by the request"
        basis = "requests counted" if cost.is_counted else "requests estimated from the calls"
        return f"about ${cost.dollars_a_million:,.2f} a million messages ({basis}; {cost.source})"

    def _machine(self) -> str:
        machine = self._report.machine
        loads = [machine.load_before, machine.load_after]
        words = ["?" if load is None else f"{load:.1f}" for load in loads]
        return (
            f"{machine.cores} core(s), Python {machine.python}, "
            f"load {words[0]} before and {words[1]} after"
        )

    def _say(self, text: str) -> None:
        self._console.print(Text(self._shown(text), "dim"), soft_wrap=True)

    def _shown(self, text: str) -> str:
        plain = printable(text)
        if not self._is_ascii:
            return plain
        return (
            plain.replace("µ", "u").replace("·", "-").encode("ascii", "backslashreplace").decode()
        )


def _rate(a_second: float) -> str:
    """With as many places as keep it from being nothing."""
    return f"{a_second:,.0f}" if a_second >= 99.5 else f"{a_second:.3g}"


def _messages(measured: Measured) -> str:
    words = [f"{measured.handled:,} handled of {measured.sent:,} sent"]
    for name, count in (
        ("rejected", measured.rejected),
        ("retried", measured.retried),
        ("leases lost", measured.lost),
    ):
        if count:
            words.append(f"{count:,} {name}")
    return f"{', '.join(words)}, in {format_duration(measured.wall_s)}"


def _processor(measured: Measured) -> str:
    share = f"{measured.cpu_share:.0%} of one core"
    if measured.rate is not None:
        share += ", sending included"
    return share if measured.cpu_us is None else f"{measured.cpu_us:,.0f} µs a message, {share}"


def _requests(measured: Measured) -> str:
    calls = measured.calls
    made = f"{calls.receives:,} receive, {calls.settles:,} settle, {calls.extends:,} extend calls"
    if measured.requests is None or measured.requests_a_thousand is None:
        return f"not counted by this gateway; {made}"
    kinds = ", ".join(f"{kind} {count:,}" for kind, count in sorted(measured.requests.items()))
    return f"{measured.requests_a_thousand:,.0f} a thousand messages ({kinds}); {made}"


def _times(spread: Spread) -> list[str]:
    moments = (spread.p50_s, spread.p90_s, spread.p99_s, spread.max_s, spread.mean_s)
    return [_short(seconds) for seconds in moments]


def _short(seconds: float) -> str:
    if seconds >= 0.0095:
        return format_duration(seconds)
    if seconds >= 0.00095:
        return f"{seconds * 1e3:.1f}ms"
    return f"{seconds * 1e6:.0f}µs" if seconds >= 9.5e-6 else f"{seconds * 1e6:.1f}µs"
