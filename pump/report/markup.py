"""Markup: values as people read them, and texts that cannot be anything but text."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from html import escape
from typing import Any

from ..observability.redaction import scrub
from .tables import Column, Kind

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FURTHEST = timedelta(days=2_900_000)
NOTHING = '<span class="none">–</span>'
_PLURAL = {True: "", False: "s"}
_MAX_TEXT = 300


def text(value: object) -> str:
    """A value as text in a page: no markup, nothing unprintable, no credentials that show."""
    said = scrub(str(value))
    return escape("".join(c if c.isprintable() else repr(c)[1:-1] for c in said))


def count(value: float) -> str:
    """12,345."""
    return f"{round(value):,}"


def compact(value: float) -> str:
    """12.3k, for axes and tiles."""
    for limit, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= limit:
            return f"{value / limit:.3g}{unit}"
    return f"{value:.3g}"


def share(value: float) -> str:
    """6.2 %; what is not nothing never reads as nothing, and what is not all never as all."""
    percent = value * 100
    if 0 < percent < 0.01:
        return "< 0.01 %"
    if 99.99 < percent < 100:
        return "> 99.99 %"
    digits = 2 if percent < 1 or 99 < percent < 100 else 1
    return f"{percent:.{digits}f} %".replace(".0 %", " %").replace(".00 %", " %")


def rate(value: float) -> str:
    """16.5/s, 3/min or 2/h, whichever says more."""
    if value >= 1 or value == 0:
        return f"{compact(value)}/s"
    return f"{value * 60:.3g}/min" if value * 60 >= 1 else f"{value * 3600:.3g}/h"


def seconds(value: float) -> str:
    """35 µs, 120 ms, 1.57 s, 2.5 min, 3.1 h or 12 d."""
    size = abs(value)
    for limit, unit in ((1e-3, "µs"), (1.0, "ms")):
        if size < limit:
            return f"{value / limit * 1e3:.3g} {unit}" if value else "0 s"
    for limit, length, unit in ((60, 1, "s"), (3_600, 60, "min"), (86_400, 3_600, "h")):
        if size < limit:
            return f"{value / length:.3g} {unit}"
    return f"{value / 86_400:,.0f} d"


def moment(time_us: int, pattern: str = "%Y-%m-%d %H:%M:%S") -> str:
    """A moment in UTC; one that no calendar has is told by its number."""
    since = timedelta(microseconds=time_us)
    if not timedelta(0) <= since < _FURTHEST:
        return f"{time_us} µs"
    return (_EPOCH + since).strftime(pattern)


_FORMATS: dict[Kind, Callable[[Any], str]] = {
    Kind.COUNT: count,
    Kind.SHARE: share,
    Kind.RATE: rate,
    Kind.SECONDS: seconds,
}


def shown(value: Any, kind: Kind) -> str:
    """The inside of a cell."""
    if value is None or value == "":
        return NOTHING
    if kind is Kind.TEXT:
        return text(value if len(value) <= _MAX_TEXT else f"{value[:_MAX_TEXT]}…")
    if kind is Kind.TIME:
        return f'<span title="{moment(value)} UTC">{moment(value, "%Y-%m-%d %H:%M")}</span>'
    return (
        '<span class="zero">0</span>'
        if value == 0 and kind is Kind.COUNT
        else escape(_FORMATS[kind](value))
    )


def plural(number: int, noun: str) -> str:
    """1 file, 2 files."""
    return f"{number:,} {noun}{_PLURAL[number == 1]}"


def table(
    caption: str,
    columns: Sequence[Column],
    rows: Iterable[Sequence[str]],
    *,
    note: str = "",
) -> str:
    """A table whose cells are markup already, under headings that stay in sight."""
    head = "".join(
        f'<th scope="col" class="{each.kind}" title="{text(each.meaning)}">'
        f"{text(each.name.replace('_', ' '))}</th>"
        for each in columns
    )
    body = "".join(
        "<tr>"
        + "".join(
            f'<td class="{each.kind}">{cell}</td>' for each, cell in zip(columns, row, strict=True)
        )
        + "</tr>"
        for row in rows
    )
    body = body or f'<tr><td class="empty" colspan="{len(columns)}">Nothing.</td></tr>'
    below = f'<p class="note">{note}</p>' if note else ""
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{text(caption)}"><table>'
        f'<caption class="hidden">{text(caption)}</caption><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>{below}"
    )
