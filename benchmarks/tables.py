"""Tables: every table of a run, in order."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from .catalogue import CONTENDERS
from .contender import Contender, Group
from .grid import Grid, times
from .growth.tables import growth_grid
from .rounds import Results
from .s3.tables import s3_grids
from .server_tables import server_grids
from .spark.tables import spark_grids
from .sqs_latency.tables import latency_grid
from .summary import Figure, aims, cheaper, compare, faster, row_of
from .watching.tables import watched_grid

_OURS = {
    Group.MEMORY: "pump",
    Group.DURABLE: "pump-local",
    Group.SQS: "pump-sqs",
    Group.SQS_FAR: "pump-sqs-far",
    Group.RABBITMQ: "rabbitmq-pump",
    Group.NATS: "nats-pump",
}
_COMPARED = (Group.MEMORY, Group.DURABLE)
_COUNTED = (Group.SQS, Group.SQS_FAR)
_CONSUMED = (Group.RABBITMQ, Group.NATS)


def grids(results: Results) -> list[Grid]:
    """Every table that has a line; the last says how we stand to our aims."""
    found = aims_grid(results)
    return [*measured_grids(results), *([found] if found.lines else [])]


def measured_grids(results: Results) -> list[Grid]:
    """Every table that has a line, without the aims."""
    made = [
        *(_group_grid(group, results, "send, handle, settle") for group in _COMPARED),
        *(_calls_grid(group, results) for group in _COUNTED),
        latency_grid(results),
        *(_group_grid(group, results, "receive, handle, settle") for group in _CONSUMED),
        *server_grids(results),
        _overhead_grid(results),
        growth_grid(results),
        watched_grid(results),
        *spark_grids(results),
        *s3_grids(results),
        _flatness_grid(results),
    ]
    return [grid for grid in made if grid.lines]


def _group_grid(group: Group, results: Results, what: str) -> Grid:
    head = (group.value, "messages", "msg/s", "CPU µs/msg", "ours ×", "CPU ×", "")
    lines = _lines(group, results, _contender_line, len(head))
    return Grid(f"{group.value}: {what}", head, lines)


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
        times(compare(readings, ours, contender.name, faster)),
        times(compare(readings, ours, contender.name, cheaper)),
        contender.note,
    )


def _calls_line(contender: Contender, results: Results) -> tuple[str, ...]:
    title, messages, rate, _, *ratios = _contender_line(contender, results)
    row = row_of(contender.name, results.readings[contender.name])
    each = f"{row.calls_per_thousand.median:,.0f}", f"{row.cpu_us.median * 1000:,.0f}"
    return (title, messages, rate, *each, *ratios)


def _overhead_grid(results: Results) -> Grid:
    lines = [
        (each.title, f"{Figure.of([r.span_cpu_us('pump') for r in readings]).median:.1f}", "")
        for each in _of_group(Group.OVERHEAD)
        if (readings := results.readings.get(each.name))
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


def aims_grid(results: Results) -> Grid:
    """Every aim whose contenders were measured."""
    lines = [
        (
            aim.title,
            f"{'≤' if aim.is_upper else '≥'} {aim.target:g}",
            f"{aim.measured.median:.2f}",
            f"{aim.measured.low:.2f} – {aim.measured.high:.2f}",
            times(aim.by_cpu),
            aim.unit,
            "met" if aim.is_met else "not met",
        )
        for aim in aims(results.readings)
    ]
    return Grid("Aims", ("Aim", "target", "median", "rounds", "by CPU", "unit", ""), tuple(lines))


def _of_group(group: Group) -> Iterator[Contender]:
    return (contender for contender in CONTENDERS if contender.group is group)
