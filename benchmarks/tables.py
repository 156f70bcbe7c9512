"""Tables: the summary as text, once, for the terminal and for README.md."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import attrs
from rich.box import SIMPLE_HEAD
from rich.console import JustifyMethod
from rich.table import Table

from .catalogue import BY_NAME, CONTENDERS
from .contender import Contender, Group
from .rounds import Results
from .summary import Aim, Figure, aims, cheaper, compare, faster, row_of

_OURS = {
    Group.MEMORY: "pump",
    Group.DURABLE: "pump-local",
    Group.SQS: "pump-sqs",
    Group.SQS_FAR: "pump-sqs-far",
}
_COMPARED = (Group.MEMORY, Group.DURABLE)
_COUNTED = (Group.SQS, Group.SQS_FAR)


@attrs.frozen
class Grid:
    """A title, a head and lines of text; the first column is left-aligned, and the last."""

    title: str
    head: tuple[str, ...]
    lines: tuple[tuple[str, ...], ...]

    def to_rich(self) -> Table:
        """For a terminal."""
        table = Table(title=self.title, title_justify="left", box=SIMPLE_HEAD)
        for position, column in enumerate(self.head):
            side: JustifyMethod = "left" if self._is_text(position) else "right"
            table.add_column(column, justify=side, no_wrap=True)
        for line in self.lines:
            table.add_row(*line)
        return table

    def to_markdown(self) -> str:
        """For README.md."""
        rules = ["---" if self._is_text(at) else "---:" for at in range(len(self.head))]
        lines = [self.head, rules, *self.lines]
        return "\n".join([f"**{self.title}**", "", *(f"| {' | '.join(line)} |" for line in lines)])

    def _is_text(self, position: int) -> bool:
        return position in (0, len(self.head) - 1)


def grids(results: Results) -> list[Grid]:
    """Every table that has a line."""
    made = [
        *(_group_grid(group, results) for group in _COMPARED),
        *(_calls_grid(group, results) for group in _COUNTED),
        _overhead_grid(results),
        _flatness_grid(results),
        _aims_grid(aims(results.readings)),
    ]
    return [grid for grid in made if grid.lines]


def _group_grid(group: Group, results: Results) -> Grid:
    head = (group.value, "messages", "msg/s", "CPU µs/msg", "ours ×", "CPU ×", "")
    lines = _lines(group, results, _contender_line, len(head))
    return Grid(f"{group.value}: send, handle, settle", head, lines)


def _calls_grid(group: Group, results: Results) -> Grid:
    head = (
        *(group.value, "messages", "msg/s", "calls/1,000", "CPU µs/1,000"),
        *("ours ×", "CPU ×", ""),
    )
    lines = _lines(group, results, _calls_line, len(head))
    return Grid(f"{group.value}: receive, handle, delete", head, lines)


def _lines(
    group: Group,
    results: Results,
    line_of: Callable[[Contender, Results], tuple[str, ...]],
    width: int,
) -> tuple[tuple[str, ...], ...]:
    lines = []
    for contender in _of_group(group):
        if contender.name in results.missing:
            lines.append((contender.title, *["–"] * (width - 2), f"needs {contender.needs}"))
        elif contender.name in results.readings:
            lines.append(line_of(contender, results))
    return tuple(lines)


def _contender_line(contender: Contender, results: Results) -> tuple[str, ...]:
    readings = results.readings
    row = row_of(contender.name, readings[contender.name])
    ours = _OURS[contender.group]
    return (
        contender.title,
        f"{row.messages:,}",
        f"{row.rate.median:,.0f}",
        f"{row.cpu_us.median:,.1f}",
        _times(compare(readings, ours, contender.name, faster)),
        _times(compare(readings, ours, contender.name, cheaper)),
        contender.note,
    )


def _calls_line(contender: Contender, results: Results) -> tuple[str, ...]:
    title, messages, rate, _, *ratios = _contender_line(contender, results)
    row = row_of(contender.name, results.readings[contender.name])
    each = f"{row.calls_per_thousand.median:,.0f}", f"{row.cpu_us.median * 1000:,.0f}"
    return (title, messages, rate, *each, *ratios)


def _overhead_grid(results: Results) -> Grid:
    named = [("with the pump", "pump"), (BY_NAME["port"].title, "port")]
    lines = [
        (title, f"{Figure.of([r.span_cpu_us('pump') for r in readings]).median:.1f}", "")
        for title, name in named
        if (readings := results.readings.get(name))
    ]
    head = ("Memory gateway", "CPU µs/msg", "")
    return Grid("Pump overhead: receive, dispatch, settle", head, tuple(lines))


def _flatness_grid(results: Results) -> Grid:
    lines = [
        (f"{reading.messages * (at + 1) // len(reading.rss_mib):,}", f"{mib:.1f}", "")
        for reading in results.readings.get("flat", ())
        for at, mib in enumerate(reading.rss_mib)
    ]
    return Grid("Memory flatness: RSS", ("after messages", "MiB", ""), tuple(lines))


def _aims_grid(found: Sequence[Aim]) -> Grid:
    lines = [
        (
            aim.title,
            f"{'<' if aim.is_upper else '≥'} {aim.target:g}",
            f"{aim.measured.median:.2f}",
            f"{aim.measured.low:.2f} – {aim.measured.high:.2f}",
            _times(aim.by_cpu),
            aim.unit,
            "met" if aim.is_met else "not met",
        )
        for aim in found
    ]
    return Grid("Aims", ("Aim", "target", "median", "rounds", "by CPU", "unit", ""), tuple(lines))


def _times(figure: Figure | None) -> str:
    return "–" if figure is None else f"{figure.median:.2f}"


def _of_group(group: Group) -> Iterator[Contender]:
    return (contender for contender in CONTENDERS if contender.group is group)
