"""Dates: the `Date` of a reply in seconds."""

from __future__ import annotations

from collections.abc import Mapping
from email.utils import parsedate_to_datetime


class DateReader:
    """Reads the dates of replies; many carry the same second, which is read once."""

    def __init__(self) -> None:
        self._text = ""
        self._date_s: float | None = None

    def __call__(self, headers: Mapping[str, str]) -> float | None:
        """Unix time of a reply, None when it does not say."""
        text = headers.get("date", "")
        if text != self._text:
            self._text, self._date_s = text, _parse(text)
        return self._date_s


def _parse(text: str) -> float | None:
    try:
        return parsedate_to_datetime(text).timestamp()
    except ValueError:
        return None
