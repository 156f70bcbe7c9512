"""The page: all of a report in one file of HTML that needs nothing else, not even a script."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from . import charts
from .charts import (
    NOTHING,
    Part,
    Series,
    Span,
    compact,
    count,
    moment,
    plural,
    rate,
    seconds,
    share,
    shown,
    table,
    text,
)
from .job import Heading
from .queries import ALL_TYPES
from .tables import BY_NAME, ResultColumn, Results, ValueKind

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
"""Whatever a text of the ledger may get past the escaping, the browser loads and runs nothing."""


def rendered(results: Results, heading: Heading) -> str:
    """The whole page."""
    totals = _totals(results)
    span = _span(results, totals)
    has_dead_letters = bool(results["dead_letter_groups"]) or bool(totals["dead_letters"])
    shown = [
        ("Volume", "volume", volume(results, span)),
        ("Failures", "failures", clusters(results)),
        ("Latency", "latency", latency(results, span)),
        ("Retries", "retries", retries(results)),
        ("Poison", "poison", poison(results)),
        ("Dead letters", "dead-letters", dead_letters(results)),
        ("First seen", "seen", seen(results)),
    ]
    if not has_dead_letters:
        shown = [each for each in shown if each[1] != "dead-letters"]
    links = "".join(f'<li><a href="#{anchor}">{name}</a></li>' for name, anchor, _ in shown)
    body = "".join(
        f'<section id="{anchor}"><h2>{name}</h2>{inside}</section>'
        for name, anchor, inside in shown
    )
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        f"<title>Pumphouse report</title><style>{STYLE}</style></head><body>"
        f"{_header(heading, totals)}"
        f'<nav aria-label="Sections"><ul>{links}</ul></nav><main>'
        f"{''.join(_tiles(totals, results))}{_skipped(heading)}{body}</main>{_footer()}"
        "</body></html>\n"
    )


def _totals(results: Results) -> dict[str, Any]:
    [row] = results["totals"]
    return dict(zip((each.name for each in BY_NAME["totals"].columns), row, strict=True))


def _span(results: Results, totals: dict[str, Any]) -> Span | None:
    volumes = results["volumes"]
    if not volumes:
        return None
    bucket_us = round(totals["bucket_s"] * 1e6)
    first_us, last_us = volumes[0][0], volumes[-1][0]
    return Span(first_us, bucket_us, (last_us - first_us) // bucket_us + 1)


def _header(heading: Heading, totals: dict[str, Any]) -> str:
    scope = heading.scope
    source = "no ledger" if heading.ledger is None else f"<b>{text(heading.ledger)}</b>"
    if totals["first_seen"] is None:
        period = "no outcomes"
    else:
        period = f"{moment(totals['first_seen'])} to {moment(totals['last_seen'])} UTC"
    types = f" · only {text(', '.join(scope.types))}" if scope.types else ""
    made = moment(round(heading.made_at_s * 1e6), "%Y-%m-%d %H:%M")
    return (
        f'<header><h1>What became of messages</h1><p class="about">{source} · {text(period)}{types}'
        f"<br>Made {text(made)} UTC by Pumphouse on {text(heading.engine)}</p></header>"
    )


def _tiles(totals: dict[str, Any], results: Results) -> Iterator[str]:
    failure_rate = totals["failure_rate"] or 0.0
    rejected = totals["dead_lettered"] + totals["discarded"]
    messages = totals["messages"]
    retried = totals["messages_retried"] / messages if messages else 0.0
    run = [row for row in results["latency"] if row[:2] == ("run_s", ALL_TYPES)]
    yield '<dl class="tiles">'
    yield _tile("Deliveries", compact(totals["deliveries"]), f"{rate(totals['per_s'])} on average")
    yield _tile("Messages", compact(messages), f"{share(retried)} needed more than one delivery")
    yield _tile(
        "Failure rate",
        share(failure_rate),
        f"{count(totals['failed'])} of {count(totals['deliveries'])} deliveries",
        is_bad=failure_rate >= 0.05,
    )
    yield _tile(
        "Rejected",
        compact(rejected),
        f"{count(totals['dead_lettered'])} dead-lettered, {count(totals['discarded'])} discarded",
        is_bad=totals["discarded"] > 0,
    )
    yield _tile(
        "Handlers, p99",
        seconds(run[0][6]) if run else "–",
        f"half within {seconds(run[0][4])}" if run else "nothing was measured",
    )
    yield _tile(
        "Kinds of failure", count(totals["clusters"]), f"{len(results['poison'])} poison messages"
    )
    yield "</dl>"


def _tile(name: str, value: str, note: str, *, is_bad: bool = False) -> str:
    style = "tile bad" if is_bad else "tile"
    return (
        f'<div class="{style}"><dt>{text(name)}</dt><dd>{text(value)}<small>{text(note)}</small>'
        "</dd></div>"
    )


def _skipped(heading: Heading) -> str:
    if not heading.skipped:
        return ""
    listed = "".join(
        f"<li><code>{text(path)}</code>: {text(why)}</li>" for path, why in heading.skipped[:50]
    )
    return (
        f'<section class="warn"><h2>{plural(len(heading.skipped), "file")} passed over</h2>'
        f"<p>What is in them is missing from this report.</p><ul>{listed}</ul></section>"
    )


def _footer() -> str:
    return (
        "<footer><p>Times are UTC. A delivery counts once, however often its row was written. "
        "Percentiles are exact to three digits. Every table lies beside this page as Parquet: "
        "<code>duckdb -c \"FROM 'clusters.parquet'\"</code>.</p></footer>"
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
    columns += [ResultColumn("pattern", ValueKind.TEXT, "what they have in common")]
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
        ResultColumn("outcomes", ValueKind.TEXT, "in what proportions deliveries ended"),
        *(each for each in declared[1:] if each.name not in ("failed", "redriven", "first_seen")),
    ]
    cells = [
        [
            shown(row[0], ValueKind.TEXT),
            _mix(_named(name, row)),
            *_cells(columns[2:], _named(name, row)),
        ]
        for row in results[name][:MAX_ROWS]
    ]
    return f"<h3>{title}</h3>{table(title, columns, cells, note=_more(results[name], name))}"


def _times(results: Results, metric: str, title: str) -> str:
    rows = [_named("latency", row) for row in results["latency"] if row[0] == metric]
    if not rows:
        return ""
    low = min(row["p50_s"] for row in rows)
    high = max(row["max_s"] for row in rows)
    columns = [ResultColumn("spread", ValueKind.TEXT, "p50, p90 and p99 on a scale of decades")]
    columns = [*_columns("latency", "type"), *columns, *BY_NAME["latency"].columns[2:]]
    cells = [
        [
            shown(row["type"], ValueKind.TEXT),
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


def _columns(name: str, *wanted: str) -> list[ResultColumn]:
    by_name = {each.name: each for each in BY_NAME[name].columns}
    return [by_name[each] for each in wanted]


def _cells(columns: Sequence[ResultColumn], row: dict[str, Any]) -> list[str]:
    return [shown(row[each.name], each.kind) for each in columns]


def _more(rows: Sequence[object], name: str) -> str:
    more = len(rows) - MAX_ROWS
    return f"{plural(more, 'more row')} in {name}.parquet." if more > 0 else ""


def _sum(rows: Sequence[dict[str, Any]], attempts: int, name: str) -> float:
    return float(sum(row[name] for row in rows if row["attempts"] == attempts))


# The page's style: one text, put into the page, for light and for dark.

STYLE = """
:root{color-scheme:light dark;--bg:#f6f7f9;--card:#fff;--ink:#1a2230;--soft:#5b6678;--faint:#98a2b3;
--edge:#e2e6ec;--head:#f0f2f6;--accent:#0f6b74;--ok:#2a8c8f;--retry:#e0a128;--dead:#cc3f39;
--gone:#7d2f63;--lost:#8791a8;--p50:#2a8c8f;--p90:#e0a128;--p99:#cc3f39;
--shadow:0 1px 2px #1018280d}
@media(prefers-color-scheme:dark){:root{--bg:#10141b;--card:#181e27;--ink:#e7ebf1;--soft:#a3afc0;
--faint:#67748a;--edge:#2a3342;--head:#1f2733;--accent:#5fc7cb;--ok:#4bb3b3;--retry:#efb94f;
--dead:#f2726b;--gone:#cf82b4;--lost:#8c97ad;--p50:#4bb3b3;--p90:#efb94f;--p99:#f2726b;
--shadow:none}}
*{box-sizing:border-box}
html{scroll-behavior:smooth;scroll-padding-top:3.5rem}
@media(prefers-reduced-motion:reduce){html{scroll-behavior:auto}}
body{margin:0;background:var(--bg);color:var(--ink);font:15px/1.5 system-ui,-apple-system,
"Segoe UI",Roboto,"Helvetica Neue",sans-serif;-webkit-text-size-adjust:100%}
header,main,footer{max-width:1280px;margin:0 auto;padding:0 24px}
header{padding-top:32px;padding-bottom:8px}
h1{font-size:26px;line-height:1.2;margin:0 0 6px;letter-spacing:-.01em}
h2{font-size:18px;margin:0;letter-spacing:-.005em}
h3{font-size:14px;margin:20px 0 8px;color:var(--soft);font-weight:600}
p{margin:6px 0}
.about{color:var(--soft);margin:0}
.about b{color:var(--ink);font-weight:600;overflow-wrap:anywhere}
nav{position:sticky;top:0;z-index:3;background:var(--bg);border-bottom:1px solid var(--edge)}
nav ul{max-width:1280px;margin:0 auto;padding:0 24px;display:flex;gap:20px;list-style:none;
overflow-x:auto}
nav a{display:block;padding:10px 0;color:var(--soft);text-decoration:none;white-space:nowrap;
font-size:14px}
nav a:hover,nav a:focus-visible{color:var(--accent)}
a:focus-visible,summary:focus-visible,.scroll:focus-visible{outline:2px solid var(--accent);
outline-offset:2px;border-radius:4px}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(165px,1fr));gap:12px;margin:20px 0}
.tile{background:var(--card);border:1px solid var(--edge);border-radius:10px;padding:14px 16px;
box-shadow:var(--shadow)}
.tile dt{color:var(--soft);font-size:13px;margin:0}
.tile dd{margin:2px 0 0;font-size:26px;line-height:1.2;font-weight:650;letter-spacing:-.02em;
font-variant-numeric:tabular-nums}
.tile dd small{display:block;font-size:12.5px;font-weight:400;color:var(--soft);letter-spacing:0;
margin-top:3px;line-height:1.35}
.tile.bad dd{color:var(--dead)}
section{background:var(--card);border:1px solid var(--edge);border-radius:12px;padding:20px 22px;
margin:16px 0;box-shadow:var(--shadow)}
section>p{color:var(--soft);max-width:75ch;margin:2px 0 14px}
figure{margin:16px 0 0}
figcaption{display:flex;flex-wrap:wrap;gap:4px 20px;justify-content:space-between;
align-items:baseline;font-weight:600;font-size:14px;margin-bottom:6px}
.legend{display:flex;flex-wrap:wrap;gap:4px 16px;list-style:none;margin:0;padding:0;
font-weight:400;font-size:13px;color:var(--soft)}
.legend i{display:inline-block;width:10px;height:10px;border-radius:2px;margin-right:6px}
.plot{overflow-x:auto}
.plot svg{display:block;width:100%;min-width:620px;height:auto}
svg .grid{stroke:var(--edge);stroke-width:1}
svg .tick{stroke:var(--faint);stroke-width:1}
svg .axis{fill:var(--soft);font-size:12px;font-variant-numeric:tabular-nums}
svg .line{fill:none;stroke-width:2;stroke-linejoin:round;stroke-linecap:round}
svg .area{opacity:.16;stroke:none}
svg .hover{fill:transparent}
svg .hover:hover,svg g:hover rect{fill-opacity:.75}
svg .hover:hover{fill:var(--ink);fill-opacity:.07}
.ok{fill:var(--ok);background:var(--ok)}.retry{fill:var(--retry);background:var(--retry)}
.dead{fill:var(--dead);background:var(--dead)}.gone{fill:var(--gone);background:var(--gone)}
.lost{fill:var(--lost);background:var(--lost)}.p50{fill:var(--p50);background:var(--p50)}
.p90{fill:var(--p90);background:var(--p90)}.p99{fill:var(--p99);background:var(--p99)}
.line.dead{stroke:var(--dead)}.line.p50{stroke:var(--p50)}.line.p90{stroke:var(--p90)}
.line.p99{stroke:var(--p99)}
.spread{vertical-align:middle}
.spread .rail{stroke:var(--faint);stroke-width:1.5}
.spread .body{fill:var(--edge)}
.scroll{max-height:460px;overflow:auto;border:1px solid var(--edge);border-radius:8px}
table{border-collapse:separate;border-spacing:0;width:100%;font-size:13.5px;
font-variant-numeric:tabular-nums}
th,td{text-align:left;padding:7px 10px;border-bottom:1px solid var(--edge);vertical-align:top}
tbody tr:last-child td{border-bottom:0}
th{position:sticky;top:0;background:var(--head);font-weight:600;font-size:12.5px;
color:var(--soft);white-space:nowrap;z-index:1}
.count,.share,.rate,.seconds{text-align:right;white-space:nowrap}
td.time{white-space:nowrap;color:var(--soft)}
td.text{overflow-wrap:break-word;min-width:5em;max-width:34em}
tbody tr:hover td{background:var(--head)}
.none,.zero{color:var(--faint)}
.empty{color:var(--soft);padding:18px 12px;text-align:center}
code,.id{font:12.5px/1.45 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;
overflow-wrap:anywhere}
td.text>code{display:block;min-width:12em}
.pattern{min-width:22em;max-width:46em}
.pattern code{display:block}
.pattern small{color:var(--soft);display:block;margin-top:4px}
.meter{height:5px;border-radius:3px;background:var(--edge);margin-top:6px;overflow:hidden}
.meter i{display:block;height:100%;border-radius:3px}
.mix{display:flex;height:8px;min-width:110px;border-radius:3px;overflow:hidden;margin-top:7px;
background:var(--edge)}
details{margin-top:5px;font-size:12.5px;color:var(--soft)}
summary{cursor:pointer;width:max-content;max-width:100%}
.note{font-size:13px;color:var(--soft);margin:8px 2px 0}
.warn{border-left:4px solid var(--retry)}
.warn ul{margin:6px 0 0;padding-left:20px;font-size:13.5px}
.hidden{position:absolute;width:1px;height:1px;overflow:hidden;clip-path:inset(50%);
white-space:nowrap}
footer{color:var(--soft);font-size:13px;padding-bottom:48px}
@media(max-width:640px){header,main,footer,nav ul{padding-left:14px;padding-right:14px}
section{padding:16px 14px}}
@media print{nav{display:none}.scroll{max-height:none;overflow:visible}body{background:#fff}
section,.tile{box-shadow:none;break-inside:avoid}}
"""
