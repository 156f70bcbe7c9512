"""Tables of queues on S3: with every request counted, and with each of them 60 ms away."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median

from ..contender import Contender
from ..grid import Grid
from ..reading import Reading
from ..rounds import Results
from ..summary import row_of
from .catalogue import FAR, NEAR, billable, consumed_rate

_MISSING = "–"
_KINDS = ("put", "list", "get", "delete")


def s3_grids(results: Results) -> list[Grid]:
    """Both tables, also without a line."""
    return [_near_grid(results), _far_grid(results)]


def _near_grid(results: Results) -> Grid:
    head = (
        *("S3", "messages", "msg/s", "CPU µs/msg", "requests/msg"),
        *("PUT", "LIST", "GET", "DELETE", ""),
    )
    title = "Queues on S3: send, then receive, handle, ack; ten consumers"
    return Grid(title, head, _lines(NEAR, results, _near_line, len(head)))


def _near_line(contender: Contender, readings: Sequence[Reading]) -> tuple[str, ...]:
    row = row_of(contender.name, readings)
    return (
        contender.title,
        f"{row.messages:,}",
        f"{row.rate.median:,.0f}",
        f"{row.cpu_us.median:,.0f}",
        f"{median(map(billable, readings)):.3f}",
        *(f"{median(_count(each, kind) for each in readings):.3f}" for kind in _KINDS),
        contender.note,
    )


def _far_grid(results: Results) -> Grid:
    head = (
        *("S3, 60 ms away", "consumers", "processes", "messages", "msg/s", "sent/s"),
        *("consumed/s", "CPU µs/msg", "requests/msg", ""),
    )
    title = "Queues on S3, 60 ms away: send, then receive, handle, ack"
    return Grid(title, head, _lines(FAR, results, _far_line, len(head)))


def _far_line(contender: Contender, readings: Sequence[Reading]) -> tuple[str, ...]:
    row = row_of(contender.name, readings)
    return (
        contender.title,
        f"{contender.options['consumers']}",
        f"{contender.options['processes']}",
        f"{row.messages:,}",
        f"{row.rate.median:,.0f}",
        f"{median(each.messages / each.spans['send'].wall_s for each in readings):,.0f}",
        f"{median(map(consumed_rate, readings)):,.0f}",
        f"{row.cpu_us.median:,.0f}",
        f"{median(map(billable, readings)):.3f}",
        contender.note,
    )


def _lines(
    contenders: Sequence[Contender],
    results: Results,
    line_of: Callable[[Contender, Sequence[Reading]], tuple[str, ...]],
    width: int,
) -> tuple[tuple[str, ...], ...]:
    lines = []
    for contender in contenders:
        if contender.name in results.missing:
            dashes = [_MISSING] * (width - 2)
            lines.append((contender.title, *dashes, f"needs {contender.needs}"))
        elif contender.name in results.readings:
            lines.append(line_of(contender, results.readings[contender.name]))
    return tuple(lines)


def _count(reading: Reading, kind: str) -> float:
    return reading.calls.get(kind, 0) / reading.messages
