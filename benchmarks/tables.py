"""Tables: every table of a run, as text for the terminal and for README.md."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from statistics import median

import attrs
from rich.box import SIMPLE_HEAD
from rich.console import JustifyMethod
from rich.table import Table

from .aims import (
    OFF,
    Figure,
    added_us,
    aims,
    billable,
    bound_of,
    cheaper,
    compare,
    dearer,
    faster,
    row_of,
    share_of_bound,
)
from .catalogue import (
    GROWTH_SERIES,
    LATENCY_CONTENDERS,
    OUTBOX_LATENCY,
    OUTBOX_POSTS,
    OUTBOX_RELAYS,
    POSTGRES_EVEN,
    POSTGRES_LATENCY,
    POSTGRES_THROUGHPUT,
    S3_FAR,
    S3_NEAR,
    SERVER_LATENCY,
    SERVER_PENDING,
    SERVER_THROUGHPUT,
    SPARK_PUMPS,
    SPARK_REPORTS,
    WATCHED_CONTENDERS,
    Contender,
    Group,
    near_of,
    of_group,
)
from .reading import Reading, Results

Line = tuple[str, ...]
_MISSING = "–"


@attrs.frozen
class Grid:
    """A title, a head and lines of text; the first column is left-aligned, and the last."""

    title: str
    head: Line
    lines: tuple[Line, ...]

    def to_rich(self) -> Table:
        """For a terminal."""
        table = Table(title=self.title, title_justify="left", box=SIMPLE_HEAD)
        for position, column in enumerate(self.head):
            side: JustifyMethod = "left" if self._is_text(position) else "right"
            table.add_column(column, justify=side, no_wrap=True)
        for line in self.lines:
            table.add_row(*line)
        return table

    def to_markdown(self, said: str = "") -> str:
        """For README.md; `said` stands between the title and the table."""
        rules = ["---" if self._is_text(at) else "---:" for at in range(len(self.head))]
        lines = [self.head, rules, *self.lines]
        above = [f"**{self.title}**", "", *([said, ""] if said else [])]
        return "\n".join([*above, *(f"| {' | '.join(line)} |" for line in lines)])

    def _is_text(self, position: int) -> bool:
        return position in (0, len(self.head) - 1)


def grids(results: Results) -> list[Grid]:
    """Every table that has a line; the last says how we stand to our aims."""
    found = aims_grid(results)
    return [*measured_grids(results), *([found] if found.lines else [])]


def measured_grids(results: Results) -> list[Grid]:
    """Every table that has a line, without the aims."""
    made = [
        _group_grid(Group.MEMORY, results, "send, handle, settle"),
        _group_grid(Group.DURABLE, results, "send, handle, settle"),
        _calls_grid(Group.SQS, results),
        _calls_grid(Group.SQS_FAR, results),
        latency_grid(results),
        _group_grid(Group.RABBITMQ, results, "receive, handle, settle"),
        _group_grid(Group.NATS, results, "receive, handle, settle"),
        _server_throughput_grid(results),
        _server_latency_grid(results),
        _server_pending_grid(results),
        _overhead_grid(results),
        growth_grid(results),
        watched_grid(results),
        spark_pump_grid(results),
        spark_report_grid(results),
        _s3_near_grid(results),
        _s3_far_grid(results),
        _postgres_grid(results),
        _postgres_even_grid(results),
        _postgres_latency_grid(results),
        _flatness_grid(results),
        _outbox_posts_grid(results),
        _outbox_relays_grid(results),
        _outbox_latency_grid(results),
    ]
    return [grid for grid in made if grid.lines]


def aims_grid(results: Results) -> Grid:
    """Every aim whose contenders were measured."""
    lines = [
        (
            aim.title,
            f"{'≤' if aim.is_upper else '≥'} {aim.target:g}",
            f"{aim.measured.median:.2f}",
            f"{aim.measured.low:.2f} – {aim.measured.high:.2f}",
            _times(aim.by_cpu),
            aim.unit,
            "met" if aim.is_met else "not met",
        )
        for aim in aims(results.readings)
    ]
    return Grid("Aims", ("Aim", "target", "median", "rounds", "by CPU", "unit", ""), tuple(lines))


def _grid(
    title: str,
    head: Line,
    contenders: Iterable[Contender],
    results: Results,
    cells: Callable[[Contender, Sequence[Reading]], Iterable[str]],
) -> Grid:
    """A line for each that was measured, between its title and its note, or could not be."""
    lines: list[Line] = []
    for each in contenders:
        if each.name in results.missing:
            lines.append((each.title, *[_MISSING] * (len(head) - 2), f"needs {each.needs}"))
        elif each.name in results.readings:
            lines.append((each.title, *cells(each, results.readings[each.name]), each.note))
    return Grid(title, head, tuple(lines))


def _times(figure: Figure | None) -> str:
    """A ratio, or that there is none."""
    return _MISSING if figure is None else f"{figure.median:.2f}"


# In one process, on SQS, on RabbitMQ and on NATS: beside others.

_OURS = {
    Group.MEMORY: "pump",
    Group.DURABLE: "pump-local",
    Group.SQS: "pump-sqs",
    Group.SQS_FAR: "pump-sqs-far",
    Group.RABBITMQ: "rabbitmq-pump",
    Group.NATS: "nats-pump",
}


def _group_grid(group: Group, results: Results, what: str) -> Grid:
    def cells(contender: Contender, readings: Sequence[Reading]) -> Line:
        row = row_of(contender.name, readings)
        return (
            f"{row.messages:,}",
            f"{row.rate.median:,.0f}",
            f"{row.cpu_us.median:,.1f}",
            *_to_ours(_OURS[group], contender, results),
        )

    head = (group.value, "messages", "msg/s", "CPU µs/msg", "ours ×", "CPU ×", "")
    return _grid(f"{group.value}: {what}", head, of_group(group), results, cells)


def _calls_grid(group: Group, results: Results) -> Grid:
    def cells(contender: Contender, readings: Sequence[Reading]) -> Line:
        row = row_of(contender.name, readings)
        return (
            f"{row.messages:,}",
            f"{row.rate.median:,.0f}",
            f"{row.calls_per_thousand.median:,.0f}",
            f"{row.cpu_us.median * 1000:,.0f}",
            *_to_ours(_OURS[group], contender, results),
        )

    head = (
        *(group.value, "messages", "msg/s", "calls/1,000", "CPU µs/1,000"),
        *("ours ×", "CPU ×", ""),
    )
    title = f"{group.value}: receive, handle, delete"
    return _grid(title, head, of_group(group), results, cells)


def _to_ours(ours: str, contender: Contender, results: Results) -> tuple[str, str]:
    return (
        _times(compare(results.readings, ours, contender.name, faster)),
        _times(compare(results.readings, ours, contender.name, cheaper)),
    )


def latency_grid(results: Results) -> Grid:
    """Pumps far from SQS: messages a second beside the bound, and what sets it."""

    def cells(contender: Contender, readings: Sequence[Reading]) -> Line:
        row = row_of(contender.name, readings)
        return (
            f"{contender.options['latency_ms']:g}",
            f"{median(each.figures['call_ms'] for each in readings):.1f}",
            f"{row.messages:,}",
            f"{row.rate.median:,.0f}",
            f"{row.cpu_us.median:,.0f}",
            *_allowed(contender, readings, results),
        )

    head = (
        *("Pumphouse SQS", "added ms", "a call, ms", "messages", "msg/s", "CPU µs/msg"),
        *("allowed msg/s", "reached", "limit", ""),
    )
    title = "SQS at growing distances: what a pump makes of its credits"
    return _grid(title, head, LATENCY_CONTENDERS, results, cells)


def _allowed(contender: Contender, readings: Sequence[Reading], results: Results) -> Line:
    near = near_of(contender)
    pairs = list(zip(readings, results.readings.get(near, ()), strict=False))
    if contender.name == near or not pairs:
        return (_MISSING, _MISSING, _MISSING)
    bounds = [bound_of(*pair) for pair in pairs]
    [(limit, _)] = Counter(bound.limit for bound in bounds).most_common(1)
    reached = compare(results.readings, contender.name, near, share_of_bound)
    return (f"{median(bound.rate for bound in bounds):,.0f}", _times(reached), limit)


# SQS servers: throughput, latency, and very many messages.


def _server_throughput_grid(results: Results) -> Grid:
    def cells(contender: Contender, readings: Sequence[Reading]) -> Line:
        row = row_of(contender.name, readings)
        clients = median(each.figures["client_cpu_s"] / each.messages * 1e6 for each in readings)
        return (
            f"{row.messages:,}",
            f"{row.rate.median:,.0f}",
            f"{row.cpu_us.median:,.0f}",
            f"{median(each.cpu_s / each.wall_s for each in readings):.2f}",
            f"{clients:,.0f}",
            *_to_ours("life-pump-local", contender, results),
        )

    head = (
        *("SQS servers", "messages", "msg/s", "CPU ms/1,000", "cores busy", "clients' CPU"),
        *("ours ×", "CPU ×", ""),
    )
    title = "SQS servers: send, receive, delete, in batches of ten"
    return _grid(title, head, SERVER_THROUGHPUT, results, cells)


def _server_latency_grid(results: Results) -> Grid:
    names = ("sending_p50_ms", "sending_p99_ms", "receiving_p50_ms", "receiving_p99_ms")

    def cells(contender: Contender, readings: Sequence[Reading]) -> Line:
        return (
            f"{readings[0].messages:,}",
            f"{readings[0].figures['rate']:,.0f}",
            *(f"{median(each.figures[name] for each in readings):.2f}" for name in names),
        )

    head = (
        *("SQS servers", "messages", "msg/s", "send p50", "p99"),
        *("send to receive p50", "p99", ""),
    )
    title = "SQS servers: single messages at a steady rate, ms"
    return _grid(title, head, SERVER_LATENCY, results, cells)


def _server_pending_grid(results: Results) -> Grid:
    lines: list[Line] = []
    for reading in results.readings.get(SERVER_PENDING.name, ()):
        figures = reading.figures
        p50, p99 = ([figures[f"{kind}_{p}_ms"] for kind in ("few", "many")] for p in ("p50", "p99"))
        lines += [
            ("messages pending", "1,000", f"{reading.messages:,}", "about 200 bytes each"),
            ("receive p50, ms", *(f"{each:.2f}" for each in p50), ""),
            ("receive p99, ms", *(f"{each:.2f}" for each in p99), ""),
            ("sent, msg/s", _MISSING, f"{reading.rate:,.0f}", "in batches of ten"),
            ("RSS, MiB", _MISSING, f"{reading.rss_mib[0]:,.0f}", "after the last send"),
            ("RSS, MiB", _MISSING, f"{reading.rss_mib[1]:,.0f}", "started with them"),
            ("start, s", _MISSING, f"{figures['start_s']:.2f}", "to the first answer"),
        ]
    head = ("pump local", "1,000 pending", "very many", "")
    return Grid("SQS servers: very many messages pending", head, tuple(lines))


# The pump by itself: its overhead, what grows, what watching costs, its memory.


def _overhead_grid(results: Results) -> Grid:
    def cells(_: Contender, readings: Sequence[Reading]) -> Line:
        return (f"{median(each.span_cpu_us('pump') for each in readings):.1f}",)

    contenders = [attrs.evolve(each, note="") for each in of_group(Group.OVERHEAD)]
    title = "Pump overhead: receive, dispatch, settle"
    return _grid(title, ("Memory gateway", "CPU µs/msg", ""), contenders, results, cells)


def growth_grid(results: Results) -> Grid:
    """Each series, and what a message costs in it, to what it costs in the smallest."""
    smallest = {each.name: series[0] for series in GROWTH_SERIES.values() for each in series}

    def cells(contender: Contender, readings: Sequence[Reading]) -> Line:
        row, first = row_of(contender.name, readings), smallest[contender.name].name
        return (
            f"{row.messages:,}",
            f"{row.rate.median:,.0f}",
            f"{row.cpu_us.median:.1f}",
            _times(compare(results.readings, contender.name, first, dearer)),
        )

    head = ("What grows", "messages", "msg/s", "CPU µs/msg", "× the smallest", "")
    title = "Growth: memory gateway, send, handle, settle"
    return _grid(title, head, of_group(Group.GROWTH), results, cells)


def watched_grid(results: Results) -> Grid:
    """What each thing that can be switched on costs a message, to nothing with the same bodies."""

    def cells(contender: Contender, readings: Sequence[Reading]) -> Line:
        row = row_of(contender.name, readings)
        off = f"{OFF}-1k" if contender.name.endswith("-1k") else OFF
        added = compare(results.readings, contender.name, off, added_us)
        return (
            f"{row.messages:,}",
            f"{row.cpu_us.median:.1f}",
            _MISSING if added is None else f"{added.median:+.1f}",
            _times(compare(results.readings, contender.name, off, dearer)),
        )

    head = ("Watched", "messages", "CPU µs/msg", "added µs", "× all off", "")
    title = "What watching costs: memory gateway, send, handle, settle"
    return _grid(title, head, WATCHED_CONTENDERS, results, cells)


def _flatness_grid(results: Results) -> Grid:
    lines = [
        (f"{reading.messages * (at + 1) // len(reading.rss_mib):,}", f"{mib:.1f}", "")
        for reading in results.readings.get("flat", ())
        for at, mib in enumerate(reading.rss_mib)
    ]
    return Grid("Memory flatness: RSS", ("after messages", "MiB", ""), tuple(lines))


# Spark.


def spark_pump_grid(results: Results) -> Grid:
    """The pump on Spark, beside ordinary processes with the same work."""

    def cells(contender: Contender, readings: Sequence[Reading]) -> Line:
        row = row_of(contender.name, readings)
        kind = "spark-toil-" if contender.options["work"] == "toil" else "spark-"
        processes = (f"{kind}processes-{count}" for count in (1, 2))
        return (
            f"{row.messages:,}",
            f"{row.rate.median:,.0f}",
            f"{row.cpu_us.median:,.0f}",
            *(_times(compare(results.readings, contender.name, p, faster)) for p in processes),
        )

    head = ("Spark", "messages", "msg/s", "CPU µs/msg", "× one process", "× two", "")
    title = "The pump on Spark: receive, handle, record, delete"
    return _grid(title, head, SPARK_PUMPS, results, cells)


def spark_report_grid(results: Results) -> Grid:
    """The report on Spark, beside DuckDB."""

    def cells(contender: Contender, readings: Sequence[Reading]) -> Line:
        return (
            f"{readings[0].messages:,}",
            f"{median(each.wall_s for each in readings):,.1f}",
            f"{median(each.rate for each in readings):,.0f}",
            f"{median(max(each.rss_mib) for each in readings):,.0f}",
            _times(compare(results.readings, contender.name, SPARK_REPORTS[0].name, faster)),
        )

    head = ("Report", "outcomes", "s", "outcomes/s", "peak MiB", "× DuckDB", "")
    title = "The report over a ledger: tables and HTML"
    return _grid(title, head, SPARK_REPORTS, results, cells)


# Queues on S3: with every request counted, and with each of them 60 ms away.


def _s3_near_grid(results: Results) -> Grid:
    kinds = ("put", "list", "get", "delete")

    def cells(contender: Contender, readings: Sequence[Reading]) -> Line:
        row = row_of(contender.name, readings)
        counts = ([each.calls.get(kind, 0) / each.messages for each in readings] for kind in kinds)
        return (
            f"{row.messages:,}",
            f"{row.rate.median:,.0f}",
            f"{row.cpu_us.median:,.0f}",
            f"{median(map(billable, readings)):.3f}",
            *(f"{median(each):.3f}" for each in counts),
        )

    head = (
        *("S3", "messages", "msg/s", "CPU µs/msg", "requests/msg"),
        *("PUT", "LIST", "GET", "DELETE", ""),
    )
    title = "Queues on S3: send, then receive, handle, ack; ten consumers"
    return _grid(title, head, S3_NEAR, results, cells)


def _s3_far_grid(results: Results) -> Grid:
    def cells(contender: Contender, readings: Sequence[Reading]) -> Line:
        row = row_of(contender.name, readings)
        sent, consumed = (
            median(each.messages / each.spans[span].wall_s for each in readings)
            for span in ("send", "consume")
        )
        return (
            f"{contender.options['consumers']}",
            f"{contender.options['processes']}",
            f"{row.messages:,}",
            f"{row.rate.median:,.0f}",
            f"{sent:,.0f}",
            f"{consumed:,.0f}",
            f"{row.cpu_us.median:,.0f}",
            f"{median(map(billable, readings)):.3f}",
        )

    head = (
        *("S3, 60 ms away", "consumers", "processes", "messages", "msg/s", "sent/s"),
        *("consumed/s", "CPU µs/msg", "requests/msg", ""),
    )
    title = "Queues on S3, 60 ms away: send, then receive, handle, ack"
    return _grid(title, head, S3_FAR, results, cells)


# The outbox.


def _outbox_posts_grid(results: Results) -> Grid:
    def cells(contender: Contender, readings: Sequence[Reading]) -> Line:
        row = row_of(contender.name, readings)
        at_once = float(contender.options["connections"])
        return (
            f"{row.messages:,}",
            f"{row.rate.median:,.0f}",
            f"{at_once / row.rate.median * 1e6:,.0f}",
            f"{row.cpu_us.median:,.0f}",
        )

    head = ("Transactions", "count", "a second", "µs each", "CPU µs each", "")
    return _grid("Outbox: posting in a transaction", head, OUTBOX_POSTS, results, cells)


def _outbox_relays_grid(results: Results) -> Grid:
    def cells(contender: Contender, readings: Sequence[Reading]) -> Line:
        row = row_of(contender.name, readings)
        return f"{row.messages:,}", f"{row.rate.median:,.0f}", f"{row.cpu_us.median:,.0f}"

    head = ("Relay", "messages", "msg/s", "CPU µs/msg", "")
    return _grid("Outbox: what waits, through one relay", head, OUTBOX_RELAYS, results, cells)


def _outbox_latency_grid(results: Results) -> Grid:
    def cells(contender: Contender, readings: Sequence[Reading]) -> Line:
        row = row_of(contender.name, readings)
        shares = ("p50_ms", "p99_ms", "p99.9_ms")
        return (
            f"{row.messages:,}",
            *(f"{median(each.figures[share] for each in readings):.1f}" for share in shares),
            f"{row.cpu_us.median:,.0f}",
        )

    head = ("Relay", "messages", "p50 ms", "p99 ms", "p99.9 ms", "CPU µs/msg", "")
    title = "Outbox: from commit to broker at 500 msg/s"
    return _grid(title, head, OUTBOX_LATENCY, results, cells)


# PostgreSQL: beside others, beside an open transaction, and at a steady rate.


def _postgres_grid(results: Results) -> Grid:
    def cells(contender: Contender, readings: Sequence[Reading]) -> Line:
        row = row_of(contender.name, readings)
        sent, consumed = (
            median(each.messages / each.spans[span].wall_s for each in readings)
            for span in ("send", "pump")
        )
        return (
            f"{row.messages:,}",
            f"{row.rate.median:,.0f}",
            f"{sent:,.0f}",
            f"{consumed:,.0f}",
            f"{row.cpu_us.median:,.1f}",
            *_to_ours("postgres-pump", contender, results),
        )

    head = (
        *("PostgreSQL", "messages", "msg/s", "sent/s", "consumed/s", "CPU µs/msg"),
        *("ours ×", "CPU ×", ""),
    )
    title = "PostgreSQL: send, then receive, handle, ack"
    return _grid(title, head, POSTGRES_THROUGHPUT, results, cells)


def _postgres_even_grid(results: Results) -> Grid:
    def cells(contender: Contender, readings: Sequence[Reading]) -> Line:
        row = row_of(contender.name, readings)
        without = contender.name.removesuffix("-held")
        return (
            f"{row.messages:,}",
            f"{row.rate.median:,.0f}",
            f"{median(each.figures['last_tenth_to_first'] for each in readings):.2f}",
            f"{median(each.figures['size_mib'] for each in readings):,.0f}",
            _times(compare(results.readings, contender.name, without, faster)),
        )

    head = (
        *("Messages", "messages", "msg/s", "last tenth × the first", "MiB at the end"),
        *("× without", ""),
    )
    title = "PostgreSQL: messages through a short queue, beside an open transaction"
    return _grid(title, head, POSTGRES_EVEN, results, cells)


def _postgres_latency_grid(results: Results) -> Grid:
    def cells(contender: Contender, readings: Sequence[Reading]) -> Line:
        figures = [each.figures for each in readings]
        return (
            f"{readings[0].messages:,}",
            f"{figures[0]['rate']:,.0f}",
            f"{median(each['receiving_p50_ms'] for each in figures):.2f}",
            f"{median(each['receiving_p99_ms'] for each in figures):.2f}",
            f"{median(each['receives_per_message'] for each in figures):.2f}",
        )

    head = ("Consumers", "messages", "msg/s", "p50, ms", "p99, ms", "receives a message", "")
    title = "PostgreSQL: send to receive, single messages at a steady rate"
    return _grid(title, head, POSTGRES_LATENCY, results, cells)
