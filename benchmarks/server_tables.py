"""Tables of the SQS servers: throughput, latency, and very many messages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median

from .catalogue import CONTENDERS
from .contender import Contender
from .grid import Grid, times
from .reading import Reading
from .rounds import Results
from .summary import cheaper, compare, faster, row_of

_OURS = "life-pump-local"
_LATENCIES = ("sending_p50_ms", "sending_p99_ms", "receiving_p50_ms", "receiving_p99_ms")
_MISSING = "–"


def server_grids(results: Results) -> list[Grid]:
    """Every table of the servers, also those without a line."""
    return [_life_grid(results), _latency_grid(results), _pending_grid(results)]


def _life_grid(results: Results) -> Grid:
    head = (
        *("SQS servers", "messages", "msg/s", "CPU ms/1,000", "cores busy", "clients' CPU"),
        *("ours ×", "CPU ×", ""),
    )
    lines = _lines("server_life", results, _life_line, len(head))
    return Grid("SQS servers: send, receive, delete, in batches of ten", head, lines)


def _life_line(contender: Contender, results: Results) -> tuple[str, ...]:
    readings = results.readings[contender.name]
    row = row_of(contender.name, readings)
    clients = median(each.figures["client_cpu_s"] / each.messages * 1e6 for each in readings)
    return (
        contender.title,
        f"{row.messages:,}",
        f"{row.rate.median:,.0f}",
        f"{row.cpu_us.median:,.0f}",
        f"{median(each.cpu_s / each.wall_s for each in readings):.2f}",
        f"{clients:,.0f}",
        times(compare(results.readings, _OURS, contender.name, faster)),
        times(compare(results.readings, _OURS, contender.name, cheaper)),
        contender.note,
    )


def _latency_grid(results: Results) -> Grid:
    head = (
        *("SQS servers", "messages", "msg/s", "send p50", "p99"),
        *("send to receive p50", "p99", ""),
    )
    lines = _lines("server_latency", results, _latency_line, len(head))
    return Grid("SQS servers: single messages at a steady rate, ms", head, lines)


def _latency_line(contender: Contender, results: Results) -> tuple[str, ...]:
    readings = results.readings[contender.name]
    return (
        contender.title,
        f"{readings[0].messages:,}",
        f"{readings[0].figures['rate']:,.0f}",
        *(f"{_median(readings, name):.2f}" for name in _LATENCIES),
        contender.note,
    )


def _pending_grid(results: Results) -> Grid:
    head = ("pump local", "1,000 pending", "very many", "")
    lines = [line for reading in _of("server_pending", results) for line in _pending_lines(reading)]
    return Grid("SQS servers: very many messages pending", head, tuple(lines))


def _pending_lines(reading: Reading) -> list[tuple[str, ...]]:
    figures = reading.figures
    return [
        ("messages pending", "1,000", f"{reading.messages:,}", "about 200 bytes each"),
        ("receive p50, ms", f"{figures['few_p50_ms']:.2f}", f"{figures['many_p50_ms']:.2f}", ""),
        ("receive p99, ms", f"{figures['few_p99_ms']:.2f}", f"{figures['many_p99_ms']:.2f}", ""),
        ("sent, msg/s", _MISSING, f"{reading.rate:,.0f}", "in batches of ten"),
        ("RSS, MiB", _MISSING, f"{reading.rss_mib[0]:,.0f}", "after the last send"),
        ("RSS, MiB", _MISSING, f"{reading.rss_mib[1]:,.0f}", "started with them"),
        ("start, s", _MISSING, f"{figures['start_s']:.2f}", "to the first answer"),
    ]


def _lines(
    module: str,
    results: Results,
    line_of: Callable[[Contender, Results], tuple[str, ...]],
    width: int,
) -> tuple[tuple[str, ...], ...]:
    lines = []
    for contender in CONTENDERS:
        if contender.module != module:
            continue
        if contender.name in results.missing:
            dashes = [_MISSING] * (width - 2)
            lines.append((contender.title, *dashes, f"needs {contender.needs}"))
        elif contender.name in results.readings:
            lines.append(line_of(contender, results))
    return tuple(lines)


def _of(module: str, results: Results) -> list[Reading]:
    names = [contender.name for contender in CONTENDERS if contender.module == module]
    return [reading for name in names for reading in results.readings.get(name, ())]


def _median(readings: Sequence[Reading], figure: str) -> float:
    return median(reading.figures[figure] for reading in readings)
