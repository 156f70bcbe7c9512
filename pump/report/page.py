"""The page: all of a report in one file of HTML that needs nothing else, not even a script.

What it says is decided here, how it looks in `page.html.jinja` and `page.css`. The template escapes
every value, so a text of the ledger is a text and nothing else; its policy has the browser load and
run nothing, whatever got past that.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from importlib.resources import files
from typing import Any, Literal, NamedTuple

from jinja2 import Environment, StrictUndefined, Template

from . import charts
from .charts import (
    Part,
    Series,
    Span,
    compact,
    count,
    legible,
    moment,
    plural,
    rate,
    seconds,
    share,
    shown,
)
from .job import Heading
from .queries import ALL_TYPES
from .tables import BY_NAME, ResultColumn, Results, ValueKind


def rendered(results: Results, heading: Heading) -> str:
    """The whole page."""
    totals = _totals(results)
    return _template().render(
        heading=heading,
        period=_period(totals),
        made=moment(round(heading.made_at_s * 1e6), "%Y-%m-%d %H:%M"),
        tiles=list(_tiles(totals, results)),
        skipped_count=plural(len(heading.skipped), "file"),
        sections=list(_sections(results, totals)),
    )


@cache
def _template() -> Template:
    here = files(__package__)
    environment = Environment(
        autoescape=True,
        finalize=_finalized,
        undefined=StrictUndefined,
        trim_blocks=True,
        keep_trailing_newline=True,
    )
    style = here.joinpath("page.css").read_text(encoding="utf-8")
    environment.globals.update(style=style, zip=zip)
    return environment.from_string(here.joinpath("page.html.jinja").read_text(encoding="utf-8"))


def _finalized(value: object) -> object:
    # Markup is what a macro made, or what the template calls safe.
    return value if hasattr(value, "__html__") else legible(value)


class Tile(NamedTuple):
    """A number that stands above the rest."""

    name: str
    value: str
    note: str
    is_bad: bool = False


class Cell(NamedTuple):
    """A cell of a table: its text, or what a form other than a text is drawn from."""

    value: Any
    form: Literal["text", "zero", "code", "chart", "mix", "pattern"] = "text"
    title: str = ""


class Mix(NamedTuple):
    """Proportions, in words and as styles with their widths in percent."""

    said: str
    parts: list[tuple[str, str]]


class Said(NamedTuple):
    """A paragraph, or a heading."""

    said: str
    style: str = ""
    form: str = "paragraph"


class Figure(NamedTuple):
    """A chart with its title; names with their styles are its legend."""

    title: str
    chart: str
    legend: Sequence[tuple[str, str]] = ()
    form: str = "figure"


class Table(NamedTuple):
    """A table, under headings that stay in sight."""

    caption: str
    columns: Sequence[ResultColumn]
    rows: Sequence[Sequence[Cell]]
    note: str = ""
    title: str = ""
    form: str = "table"


Blocks = Iterator[Said | Figure | Table]


class Section(NamedTuple):
    """A part of the page that its navigation leads to."""

    name: str
    anchor: str
    blocks: list[Said | Figure | Table]


def _totals(results: Results) -> dict[str, Any]:
    [row] = results["totals"]
    return dict(zip((each.name for each in BY_NAME["totals"].columns), row, strict=True))


def _period(totals: dict[str, Any]) -> str:
    if totals["first_seen"] is None:
        return "no outcomes"
    return f"{moment(totals['first_seen'])} to {moment(totals['last_seen'])} UTC"


def _span(results: Results, totals: dict[str, Any]) -> Span | None:
    volumes = results["volumes"]
    if not volumes:
        return None
    bucket_us = round(totals["bucket_s"] * 1e6)
    first_us, last_us = volumes[0][0], volumes[-1][0]
    return Span(first_us, bucket_us, (last_us - first_us) // bucket_us + 1)


def _sections(results: Results, totals: dict[str, Any]) -> Iterator[Section]:
    span = _span(results, totals)
    yield Section("Volume", "volume", list(volume(results, span)))
    yield Section("Failures", "failures", list(clusters(results)))
    yield Section("Latency", "latency", list(latency(results, span)))
    yield Section("Retries", "retries", list(retries(results)))
    yield Section("Poison", "poison", list(poison(results)))
    if results["dead_letter_groups"] or totals["dead_letters"]:
        yield Section("Dead letters", "dead-letters", list(dead_letters(results)))
    yield Section("First seen", "seen", list(seen(results)))


def _tiles(totals: dict[str, Any], results: Results) -> Iterator[Tile]:
    failure_rate = totals["failure_rate"] or 0.0
    rejected = totals["dead_lettered"] + totals["discarded"]
    messages = totals["messages"]
    retried = totals["messages_retried"] / messages if messages else 0.0
    run = [row for row in results["latency"] if row[:2] == ("run_s", ALL_TYPES)]
    yield Tile("Deliveries", compact(totals["deliveries"]), f"{rate(totals['per_s'])} on average")
    yield Tile("Messages", compact(messages), f"{share(retried)} needed more than one delivery")
    yield Tile(
        "Failure rate",
        share(failure_rate),
        f"{count(totals['failed'])} of {count(totals['deliveries'])} deliveries",
        is_bad=failure_rate >= 0.05,
    )
    yield Tile(
        "Rejected",
        compact(rejected),
        f"{count(totals['dead_lettered'])} dead-lettered, {count(totals['discarded'])} discarded",
        is_bad=totals["discarded"] > 0,
    )
    yield Tile(
        "Handlers, p99",
        seconds(run[0][6]) if run else "–",
        f"half within {seconds(run[0][4])}" if run else "nothing was measured",
    )
    yield Tile(
        "Kinds of failure", count(totals["clusters"]), f"{len(results['poison'])} poison messages"
    )


# Sections of the page, each made of its tables.

MAX_ROWS = 50
"""Rows of a table on the page; Parquet has all of them."""
_STATUSES = (
    ("processed", "ok"),
    ("retrying", "retry"),
    ("dead-lettered", "dead"),
    ("discarded", "gone"),
    ("lease-lost", "lost"),
)
_PERCENTILES = (("p50", "p50"), ("p90", "p90"), ("p99", "p99"))
_NOTHING_YET = Said("There are no outcomes in this stretch of time.", style="empty")
Row = Sequence[Any]


def volume(results: Results, span: Span | None) -> Blocks:
    """Over time; by type, queue and reason."""
    if span is None:
        yield _NOTHING_YET
        return
    volumes = [_named("volumes", row) for row in results["volumes"]]
    series = [
        Series(name, style, {row["start"]: row[name.replace("-", "_")] for row in volumes})
        for name, style in _STATUSES
    ]
    present = [each for each in series if any(each.values.values())]
    failures = {row["start"]: row["failure_rate"] for row in volumes if row["deliveries"]}
    yield Figure(
        "Deliveries by outcome",
        charts.stacked(span, present, "Deliveries over time, by outcome"),
        [(each.name, each.style) for each in present],
    )
    failed = Series("failure rate", "dead", failures)
    yield Figure(
        "Failure rate",
        charts.shares(span, failed, "Share of deliveries that failed, over time"),
    )
    yield from _breakdown(results, "types", "By type")
    yield from _breakdown(results, "queues", "By queue")
    yield from _breakdown(results, "reasons", "Rejections by reason")


def clusters(results: Results) -> Blocks:
    """Failures that are alike."""
    rows = [_named("clusters", row) for row in results["clusters"]]
    if not rows:
        yield Said("No failure left a text.")
        return
    yield Said(
        "Failures whose texts are the same but for numbers, ids, quoted texts, paths and "
        "addresses. The most frequent first."
    )
    most = rows[0]["count"]
    columns = _columns("clusters", "count", "share", "messages", "dead_lettered")
    columns += [ResultColumn("pattern", ValueKind.TEXT, "what they have in common")]
    columns += _columns("clusters", "first_seen", "last_seen")
    cells = [
        [
            *_cells(columns[:4], row),
            Cell((row, f"{max(row['count'] / most * 100, 0.5):.1f}"), "pattern"),
            *_cells(columns[5:], row),
        ]
        for row in rows[:MAX_ROWS]
    ]
    yield Table("Clusters of failures", columns, cells, _more(rows, "clusters"))


def latency(results: Results, span: Span | None) -> Blocks:
    """How long handlers ran, and how old messages became."""
    if span is None or not results["latency"]:
        yield Said("Nothing was measured.")
        return
    over_time = [_named("latency_over_time", row) for row in results["latency_over_time"]]
    series = [
        Series(name, style, {row["start"]: row[f"{name}_s"] for row in over_time})
        for name, style in _PERCENTILES
    ]
    if over_time:
        chart = charts.times(span, series, "Percentiles of handlers' running times, over time")
        yield Figure("How long handlers ran", chart, _PERCENTILES)
    yield from _times(results, "run_s", "Handlers' running time (run_s) by type")
    yield from _times(results, "age_s", "Age of messages at their outcome (age_s) by type")


def retries(results: Results) -> Blocks:
    """Attempts, and what became of messages in the end."""
    attempts = [_named("attempts", row) for row in results["attempts"]]
    if not attempts:
        yield Said("There were no deliveries.")
        return
    numbers = sorted({row["attempts"] for row in attempts})
    values = [
        (
            f"{number}+" if number == 20 else str(number),
            [
                Part(name, style, _sum(attempts, number, name.replace("-", "_")))
                for name, style in _STATUSES
            ],
        )
        for number in numbers
    ]
    title = "Deliveries by number of the attempt"
    yield Figure(title, charts.columns(values, title), _STATUSES)
    yield Said("What became of messages in the end", form="heading")
    columns = list(BY_NAME["messages"].columns)
    cells = [_cells(columns, _named("messages", row)) for row in results["messages"][:MAX_ROWS]]
    note = _more(results["messages"], "messages")
    yield Table("Messages by their last outcome", columns, cells, note)


def poison(results: Results) -> Blocks:
    """Messages that fail again and again."""
    yield Said(
        "Messages with five failures or attempts, or that were rejected twice: also those that "
        "were sent again and failed again."
    )
    yield _whole(results, "poison", codes=("message_id",))


def dead_letters(results: Results) -> Blocks:
    """What lies in dead-letter queues."""
    yield Said("What lay in the dead-letter queues when this report was made.")
    yield _whole(results, "dead_letter_groups", codes=("pattern", "example_message_id"))


def seen(results: Results) -> Blocks:
    """The latest newcomers first."""
    rows = sorted(results["seen"], key=lambda row: (-row[3], row[0], row[1]))
    yield Said(
        "When each type, queue, reason and kind of failure was first and last met in this "
        "stretch of time. The newest first."
    )
    yield _whole({"seen": rows}, "seen")


def _breakdown(results: Results, name: str, title: str) -> Blocks:
    if not results[name]:
        return
    declared = BY_NAME[name].columns
    columns = [
        declared[0],
        ResultColumn("outcomes", ValueKind.TEXT, "in what proportions deliveries ended"),
        *(each for each in declared[1:] if each.name not in ("failed", "redriven", "first_seen")),
    ]
    cells = [
        [
            _cell(row[0], ValueKind.TEXT),
            _mix(_named(name, row)),
            *_cells(columns[2:], _named(name, row)),
        ]
        for row in results[name][:MAX_ROWS]
    ]
    yield Table(title, columns, cells, _more(results[name], name), title)


def _times(results: Results, metric: str, title: str) -> Blocks:
    rows = [_named("latency", row) for row in results["latency"] if row[0] == metric]
    if not rows:
        return
    low = min(row["p50_s"] for row in rows)
    high = max(row["max_s"] for row in rows)
    columns = [ResultColumn("spread", ValueKind.TEXT, "p50, p90 and p99 on a scale of decades")]
    columns = [*_columns("latency", "type"), *columns, *BY_NAME["latency"].columns[2:]]
    cells = [
        [_cell(row["type"], ValueKind.TEXT), _spread(low, row, high), *_cells(columns[2:], row)]
        for row in rows[:MAX_ROWS]
    ]
    yield Table(title, columns, cells, _more(rows, "latency"), title)


def _spread(low: float, row: dict[str, Any], high: float) -> Cell:
    points = [row[each] for each in ("p50_s", "p90_s", "p99_s", "max_s")]
    return Cell(charts.spread(low, points, high), "chart")


def _whole(results: Results, name: str, *, codes: tuple[str, ...] = ()) -> Table:
    columns = list(BY_NAME[name].columns)
    cells = [_cells(columns, _named(name, row), codes) for row in results[name][:MAX_ROWS]]
    return Table(BY_NAME[name].meaning, columns, cells, _more(results[name], name))


def _mix(row: dict[str, Any]) -> Cell:
    total = row["deliveries"]
    if not total:
        return Cell("")
    parts = [
        (name, style, row[name.replace("-", "_")] / total)
        for name, style in _STATUSES
        if row[name.replace("-", "_")]
    ]
    said = ", ".join(f"{name} {share(part)}" for name, _, part in parts)
    return Cell(
        Mix(said, [(style, f"{max(part * 100, 0.8):.2f}") for _, style, part in parts]), "mix"
    )


def _named(name: str, row: Row) -> dict[str, Any]:
    return dict(zip((each.name for each in BY_NAME[name].columns), row, strict=True))


def _columns(name: str, *wanted: str) -> list[ResultColumn]:
    by_name = {each.name: each for each in BY_NAME[name].columns}
    return [by_name[each] for each in wanted]


def _cells(
    columns: Sequence[ResultColumn], row: dict[str, Any], codes: tuple[str, ...] = ()
) -> list[Cell]:
    return [_cell(row[each.name], each.kind, is_code=each.name in codes) for each in columns]


def _cell(value: Any, kind: ValueKind, *, is_code: bool = False) -> Cell:
    said = shown(value, kind)
    if is_code:
        return Cell(said, "code")
    if kind is ValueKind.TIME and value is not None:
        return Cell(said, title=f"{moment(value)} UTC")
    return Cell(said, "zero" if kind is ValueKind.COUNT and value == 0 else "text")


def _more(rows: Sequence[object], name: str) -> str:
    more = len(rows) - MAX_ROWS
    return f"{plural(more, 'more row')} in {name}.parquet." if more > 0 else ""


def _sum(rows: Sequence[dict[str, Any]], attempts: int, name: str) -> float:
    return float(sum(row[name] for row in rows if row["attempts"] == attempts))
