"""An entry of the file, read key by key; what is wrong is noted and reading goes on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from math import isfinite, nan
from typing import Any, TypeVar

from pump.durations import parse_duration

from .problems import ABSENT, Problem

T = TypeVar("T")
Read = Callable[[object], T]


class Unusable(ValueError):
    """A value that cannot work; its text is the remedy."""


class Entry:
    """A table of the file, with the path to it. `problems` is shared by the whole file."""

    def __init__(self, values: Mapping[str, Any], path: str, problems: list[Problem]) -> None:
        self._values = values
        self._path = path
        self._problems = problems
        self._known: list[str] = []

    def take(self, key: str, read: Read[T], default: T) -> T:
        """The value of an optional key; the default as well when what is there cannot work."""
        self._known.append(key)
        value = self._values.get(key, ABSENT)
        if value is ABSENT:
            return default
        try:
            return read(value)
        except Unusable as problem:
            self.note(key, str(problem))
            return default

    def require(self, key: str, read: Read[T], remedy: str) -> T | None:
        """The value of a key that must be there; None, and a problem noted, when it is not."""
        self._known.append(key)
        if key not in self._values:
            self.note(key, remedy)
            return None
        return self.take(key, read, None)

    def note(self, key: str, remedy: str) -> None:
        """Something is wrong with this key, whether or not it is there."""
        value = self._values.get(key, ABSENT)
        self._problems.append(Problem(self.path_of(key), value, remedy))

    def path_of(self, key: str) -> str:
        """`mappings[1].batch_size` for `batch_size`."""
        return f"{self._path}.{key}" if self._path else key

    def finish(self) -> None:
        """Name every key that nobody asked for."""
        for key in self._values:
            if key not in self._known:
                self.note(key, unknown_key(key, self._known))


def unknown_key(key: object, known: list[str]) -> str:
    """The remedy for a key that means nothing: the one that was probably meant."""
    close = get_close_matches(str(key), known, n=1)
    if close:
        return f"there is no such key; did you mean {close[0]}?"
    return f"there is no such key; use one of {', '.join(sorted(set(known)))}"


def table(value: object) -> Mapping[str, Any]:
    """A table with keys of text; an empty entry of YAML is an empty table."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise Unusable("write a table of keys and values here")
    for key in value:
        if not isinstance(key, str):
            raise Unusable(f"the key {key!r} is not text; put it in quotes")
    return value


def text(value: object) -> str:
    """Some text, not empty."""
    if not isinstance(value, str) or not value.strip():
        raise Unusable("write some text")
    return value


def flag(value: object) -> bool:
    """Yes or no, as the file's format writes it."""
    if not isinstance(value, bool):
        raise Unusable("write true or false")
    return value


def whole(least: int, most: int) -> Read[int]:
    """A whole number within limits."""

    def read(value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise Unusable(f"use a whole number from {least} to {most}")
        return value

    return read


def seconds(least: int, most: int) -> Read[int]:
    """A duration within limits, in whole seconds: a number of them, or text such as 30s or 2m."""

    def read(value: object) -> int:
        found = _seconds_in(value)
        if not found.is_integer():
            raise Unusable("SQS counts in whole seconds; leave out the rest")
        if not least <= found <= most:
            raise Unusable(f"use {least} to {most} seconds, as a number or as 30s, 2m, 1h30m")
        return int(found)

    return read


def _seconds_in(value: object) -> float:
    if isinstance(value, str):
        try:
            return parse_duration(value).total_seconds()
        except ValueError as error:
            raise Unusable(str(error)) from None
    try:
        found = nan if isinstance(value, bool | None) else float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        found = nan
    if not isfinite(found):
        raise Unusable("write a duration: a number of seconds, or text such as 30s, 2m, 1h30m")
    return found
