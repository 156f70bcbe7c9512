"""Tables of what runs on Spark."""

from __future__ import annotations

from statistics import median

from ..contender import Contender
from ..grid import Grid, times
from ..rounds import Results
from ..summary import compare, faster, row_of
from .catalogue import PUMPS, REPORTS

_MISSING = "–"


def spark_grids(results: Results) -> list[Grid]:
    """Both tables, also without a line."""
    return [_pump_grid(results), _report_grid(results)]


def _pump_grid(results: Results) -> Grid:
    head = ("Spark", "messages", "msg/s", "CPU µs/msg", "× one process", "× two", "")
    lines = tuple(
        _pump_line(each, results) if each.name in results.readings else _absent(each, len(head))
        for each in PUMPS
        if each.name in results.readings or each.name in results.missing
    )
    return Grid("The pump on Spark: receive, handle, record, delete", head, lines)


def _pump_line(contender: Contender, results: Results) -> tuple[str, ...]:
    readings = results.readings
    row = row_of(contender.name, readings[contender.name])
    kind = "spark-toil-" if contender.options["work"] == "toil" else "spark-"
    return (
        contender.title,
        f"{row.messages:,}",
        f"{row.rate.median:,.0f}",
        f"{row.cpu_us.median:,.0f}",
        *(
            times(compare(readings, contender.name, f"{kind}processes-{count}", faster))
            for count in (1, 2)
        ),
        contender.note,
    )


def _report_grid(results: Results) -> Grid:
    head = ("Report", "outcomes", "s", "outcomes/s", "peak MiB", "× DuckDB", "")
    lines = tuple(
        _report_line(each, results) if each.name in results.readings else _absent(each, len(head))
        for each in REPORTS
        if each.name in results.readings or each.name in results.missing
    )
    return Grid("The report over a ledger: tables and HTML", head, lines)


def _report_line(contender: Contender, results: Results) -> tuple[str, ...]:
    readings = results.readings[contender.name]
    return (
        contender.title,
        f"{readings[0].messages:,}",
        f"{median(each.wall_s for each in readings):,.1f}",
        f"{median(each.rate for each in readings):,.0f}",
        f"{median(max(each.rss_mib) for each in readings):,.0f}",
        times(compare(results.readings, contender.name, REPORTS[0].name, faster)),
        contender.note,
    )


def _absent(contender: Contender, width: int) -> tuple[str, ...]:
    return (contender.title, *[_MISSING] * (width - 2), f"needs {contender.needs}")
