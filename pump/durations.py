"""Durations as people write them: 100ms, 5s, 2m, 1h30m, 7d. Parsed and written here only."""

from __future__ import annotations

import re
from datetime import timedelta

_UNITS_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}
_PART = r"(\d+(?:\.\d+)?)(ms|s|m|h|d)"
_WHOLE = re.compile(rf"(?:{_PART})+")


def parse_duration(text: str) -> timedelta:
    """Read a duration; ValueError, in words for the user, when it is none."""
    compact = text.strip().lower().replace(" ", "")
    if compact == "0":
        return timedelta(0)
    if not _WHOLE.fullmatch(compact):
        raise ValueError(f"{text!r} is not a duration; write it as 100ms, 5s, 2m, 1h30m or 7d")
    try:
        return timedelta(
            seconds=sum(float(n) * _UNITS_S[unit] for n, unit in re.findall(_PART, compact))
        )
    except OverflowError:
        raise ValueError(f"{text!r} is longer than time itself; use fewer days") from None


def format_duration(seconds: float) -> str:
    """Write a duration in its two largest units, so that a column of them can be compared."""
    if seconds < 0.9995:
        return f"{max(0, round(seconds * 1000))}ms"
    if seconds < 59.95:
        return f"{seconds:.1f}s"
    whole = round(seconds)
    for large, small, factor in (("d", "h", 86_400), ("h", "m", 3_600), ("m", "s", 60)):
        if whole >= factor:
            rest = whole % factor // {"h": 3_600, "m": 60, "s": 1}[small]
            return (
                f"{whole // factor}{large} {rest}{small}" if rest else f"{whole // factor}{large}"
            )
    return f"{whole}s"
