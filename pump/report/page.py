"""The page: all of a report in one file of HTML that needs nothing else, not even a script."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from . import sections
from .axes import Span
from .markup import compact, count, moment, plural, rate, seconds, share, text
from .output import Heading
from .queries import ALL_TYPES
from .style import STYLE
from .tables import BY_NAME, Results

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
"""Whatever a text of the ledger may get past the escaping, the browser loads and runs nothing."""


def rendered(results: Results, heading: Heading) -> str:
    """The whole page."""
    totals = _totals(results)
    span = _span(results, totals)
    has_dead_letters = bool(results["dead_letter_groups"]) or bool(totals["dead_letters"])
    shown = [
        ("Volume", "volume", sections.volume(results, span)),
        ("Failures", "failures", sections.clusters(results)),
        ("Latency", "latency", sections.latency(results, span)),
        ("Retries", "retries", sections.retries(results)),
        ("Poison", "poison", sections.poison(results)),
        ("Dead letters", "dead-letters", sections.dead_letters(results)),
        ("First seen", "seen", sections.seen(results)),
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
