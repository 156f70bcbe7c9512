"""Sections of the page, each made of its tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from . import charts
from .axes import Span
from .charts import Part, Series
from .markup import NOTHING, plural, share, shown, table, text
from .tables import BY_NAME, Column, Kind, Results

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
_NOTHING_YET = '<p class="empty">There are no outcomes in this stretch of time.</p>'
Row = Sequence[Any]


def volume(results: Results, span: Span | None) -> str:
    """Over time; by type, queue and reason."""
    if span is None:
        return _NOTHING_YET
    volumes = [_named("volumes", row) for row in results["volumes"]]
    series = [
        Series(name, style, {row["start"]: row[name.replace("-", "_")] for row in volumes})
        for name, style in _STATUSES
    ]
    present = [each for each in series if any(each.values.values())]
    failures = {row["start"]: row["failure_rate"] for row in volumes if row["deliveries"]}
    return (
        _figure(
            "Deliveries by outcome",
            charts.stacked(span, present, "Deliveries over time, by outcome"),
            charts.legend([(each.name, each.style) for each in present]),
        )
        + _figure(
            "Failure rate",
            charts.shares(
                span,
                Series("failure rate", "dead", failures),
                "Share of deliveries that failed, over time",
            ),
        )
        + _breakdown(results, "types", "By type")
        + _breakdown(results, "queues", "By queue")
        + _breakdown(results, "reasons", "Rejections by reason")
    )


def clusters(results: Results) -> str:
    """Failures that are alike."""
    rows = [_named("clusters", row) for row in results["clusters"]]
    if not rows:
        return "<p>No failure left a text.</p>"
    most = rows[0]["count"]
    columns = _columns("clusters", "count", "share", "messages", "dead_lettered")
    columns += [Column("pattern", Kind.TEXT, "what they have in common")]
    columns += _columns("clusters", "first_seen", "last_seen")
    cells = [
        [
            *_cells(columns[:4], row),
            _pattern(row, row["count"] / most),
            *_cells(columns[5:], row),
        ]
        for row in rows[:MAX_ROWS]
    ]
    made = table("Clusters of failures", columns, cells, note=_more(rows, "clusters"))
    return (
        "<p>Failures whose texts are the same but for numbers, ids, quoted texts, paths and "
        f"addresses. The most frequent first.</p>{made}"
    )


def latency(results: Results, span: Span | None) -> str:
    """How long handlers ran, and how old messages became."""
    if span is None or not results["latency"]:
        return "<p>Nothing was measured.</p>"
    over_time = [_named("latency_over_time", row) for row in results["latency_over_time"]]
    series = [
        Series(name, style, {row["start"]: row[f"{name}_s"] for row in over_time})
        for name, style in _PERCENTILES
    ]
    legend = charts.legend(_PERCENTILES)
    chart = charts.times(span, series, "Percentiles of handlers' running times, over time")
    return (
        (_figure("How long handlers ran", chart, legend) if over_time else "")
        + _times(results, "run_s", "Handlers' running time (run_s) by type")
        + _times(results, "age_s", "Age of messages at their outcome (age_s) by type")
    )


def retries(results: Results) -> str:
    """Attempts, and what became of messages in the end."""
    attempts = [_named("attempts", row) for row in results["attempts"]]
    if not attempts:
        return "<p>There were no deliveries.</p>"
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
    columns = list(BY_NAME["messages"].columns)
    cells = [_cells(columns, _named("messages", row)) for row in results["messages"][:MAX_ROWS]]
    return (
        _figure(
            "Deliveries by number of the attempt",
            charts.columns(values, "Deliveries by number of the attempt"),
            charts.legend(_STATUSES),
        )
        + "<h3>What became of messages in the end</h3>"
        + table(
            "Messages by their last outcome",
            columns,
            cells,
            note=_more(results["messages"], "messages"),
        )
    )


def poison(results: Results) -> str:
    """Messages that fail again and again."""
    return (
        "<p>Messages with five failures or attempts, or that were rejected twice: also those that "
        f"were sent again and failed again.</p>{_whole(results, 'poison', codes=('message_id',))}"
    )


def dead_letters(results: Results) -> str:
    """What lies in dead-letter queues."""
    return (
        "<p>What lay in the dead-letter queues when this report was made.</p>"
        f"{_whole(results, 'dead_letter_groups', codes=('pattern', 'example_message_id'))}"
    )


def seen(results: Results) -> str:
    """The latest newcomers first."""
    rows = sorted(results["seen"], key=lambda row: (-row[3], row[0], row[1]))
    return (
        "<p>When each type, queue, reason and kind of failure was first and last met in this "
        f"stretch of time. The newest first.</p>{_whole({'seen': rows}, 'seen')}"
    )


def _breakdown(results: Results, name: str, title: str) -> str:
    if not results[name]:
        return ""
    declared = BY_NAME[name].columns
    columns = [
        declared[0],
        Column("outcomes", Kind.TEXT, "in what proportions deliveries ended"),
        *(each for each in declared[1:] if each.name not in ("failed", "redriven", "first_seen")),
    ]
    cells = [
        [shown(row[0], Kind.TEXT), _mix(_named(name, row)), *_cells(columns[2:], _named(name, row))]
        for row in results[name][:MAX_ROWS]
    ]
    return f"<h3>{title}</h3>{table(title, columns, cells, note=_more(results[name], name))}"


def _times(results: Results, metric: str, title: str) -> str:
    rows = [_named("latency", row) for row in results["latency"] if row[0] == metric]
    if not rows:
        return ""
    low = min(row["p50_s"] for row in rows)
    high = max(row["max_s"] for row in rows)
    columns = [Column("spread", Kind.TEXT, "p50, p90 and p99 on a scale of decades")]
    columns = [*_columns("latency", "type"), *columns, *BY_NAME["latency"].columns[2:]]
    cells = [
        [
            shown(row["type"], Kind.TEXT),
            charts.spread(low, [row[each] for each in ("p50_s", "p90_s", "p99_s", "max_s")], high),
            *_cells(columns[2:], row),
        ]
        for row in rows[:MAX_ROWS]
    ]
    return f"<h3>{title}</h3>{table(title, columns, cells, note=_more(rows, 'latency'))}"


def _whole(results: Results, name: str, *, codes: tuple[str, ...] = ()) -> str:
    columns = list(BY_NAME[name].columns)
    cells = [
        [
            f"<code>{cell}</code>" if column.name in codes and cell != NOTHING else cell
            for column, cell in zip(columns, _cells(columns, _named(name, row)), strict=True)
        ]
        for row in results[name][:MAX_ROWS]
    ]
    return table(BY_NAME[name].meaning, columns, cells, note=_more(results[name], name))


def _pattern(row: dict[str, Any], part: float) -> str:
    return (
        f'<div class="pattern"><code>{text(row["pattern"])}</code>'
        f'<div class="meter"><i class="dead" style="width:{max(part * 100, 0.5):.1f}%"></i></div>'
        f"<small>{text(row['types'])} · {text(row['queues'])}</small>"
        f"<details><summary>the last of them</summary><code>{text(row['example'])}</code>"
        f"<br>message <code>{text(row['example_message_id'])}</code>, fingerprint "
        f"<code>{text(row['fingerprint'])}</code></details></div>"
    )


def _mix(row: dict[str, Any]) -> str:
    total = row["deliveries"]
    if not total:
        return NOTHING
    parts = [
        (name, style, row[name.replace("-", "_")] / total)
        for name, style in _STATUSES
        if row[name.replace("-", "_")]
    ]
    said = ", ".join(f"{name} {share(part)}" for name, _, part in parts)
    bars = "".join(
        f'<i class="{style}" style="width:{max(part * 100, 0.8):.2f}%"></i>'
        for _, style, part in parts
    )
    return f'<div class="mix" title="{text(said)}">{bars}</div>'


def _figure(title: str, chart: str, legend: str = "") -> str:
    return f"<figure><figcaption><span>{text(title)}</span>{legend}</figcaption>{chart}</figure>"


def _named(name: str, row: Row) -> dict[str, Any]:
    return dict(zip((each.name for each in BY_NAME[name].columns), row, strict=True))


def _columns(name: str, *wanted: str) -> list[Column]:
    by_name = {each.name: each for each in BY_NAME[name].columns}
    return [by_name[each] for each in wanted]


def _cells(columns: Sequence[Column], row: dict[str, Any]) -> list[str]:
    return [shown(row[each.name], each.kind) for each in columns]


def _more(rows: Sequence[object], name: str) -> str:
    more = len(rows) - MAX_ROWS
    return f"{plural(more, 'more row')} in {name}.parquet." if more > 0 else ""


def _sum(rows: Sequence[dict[str, Any]], attempts: int, name: str) -> float:
    return float(sum(row[name] for row in rows if row["attempts"] == attempts))
