"""Comparisons: what an event pattern may ask of one value. Pure.

Values are JSON's: text, numbers, true, false and null. True is not 1 here, and 1 is 1.0.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from typing import Final

import attrs

Scalar = str | int | float | bool | None

NUMERIC: Final[Mapping[str, Callable[[float, float], bool]]] = {
    "=": operator.eq,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


@attrs.frozen
class Exactly:
    """The value itself; the empty text and null are values like any other."""

    wanted: Scalar

    def accepts(self, value: Scalar) -> bool:
        """Whether it is that value, of the same kind."""
        return value == self.wanted and isinstance(value, bool) == isinstance(self.wanted, bool)


@attrs.frozen
class Prefix:
    """Text that begins so."""

    text: str
    ignores_case: bool = False

    def accepts(self, value: Scalar) -> bool:
        """Whether it is such text."""
        return isinstance(value, str) and _fold(value, self.ignores_case).startswith(
            _fold(self.text, self.ignores_case)
        )


@attrs.frozen
class Suffix:
    """Text that ends so."""

    text: str
    ignores_case: bool = False

    def accepts(self, value: Scalar) -> bool:
        """Whether it is such text."""
        return isinstance(value, str) and _fold(value, self.ignores_case).endswith(
            _fold(self.text, self.ignores_case)
        )


@attrs.frozen
class SameLetters:
    """The same text in capital or small letters."""

    text: str

    def accepts(self, value: Scalar) -> bool:
        """Whether it is that text."""
        return isinstance(value, str) and _fold(value, True) == _fold(self.text, True)


@attrs.frozen
class Wildcard:
    r"""Text in which `*` stands for any, even none; `\*` is a star and `\\` a backslash."""

    text: str

    def accepts(self, value: Scalar) -> bool:
        """Whether it is such text; in linear time, because a body may be long."""
        if not isinstance(value, str):
            return False
        first, *others = _between_stars(self.text)
        if not others:
            return value == first
        *middle, last = others
        end = len(value) - len(last)
        if end < len(first) or not value.startswith(first) or not value.endswith(last):
            return False
        return _in_order(middle, value, len(first), end)


@attrs.frozen
class Numeric:
    """A number for which every test holds: `((">", 0), ("<=", 5))`."""

    tests: tuple[tuple[str, float], ...]

    def accepts(self, value: Scalar) -> bool:
        """Whether it is such a number."""
        return (
            isinstance(value, int | float)
            and is_number(value)
            and all(NUMERIC[sign](value, limit) for sign, limit in self.tests)
        )


@attrs.frozen
class AnythingBut:
    """Any value, of any kind, that none of these accepts."""

    refused: tuple[Exactly | Prefix | Suffix | SameLetters | Wildcard, ...]

    def accepts(self, value: Scalar) -> bool:
        """Whether none accepts it."""
        return not any(each.accepts(value) for each in self.refused)


@attrs.frozen
class Exists:
    """That there is a value, or that there is none."""

    wanted: bool


ValueComparison = Exactly | Prefix | Suffix | SameLetters | Wildcard | Numeric | AnythingBut
Comparison = ValueComparison | Exists


def is_number(value: object) -> bool:
    """Whether JSON would call it a number."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def _fold(text: str, ignores_case: bool) -> str:
    return text.lower() if ignores_case else text


def _between_stars(text: str) -> list[str]:
    pieces = [""]
    for part in re.findall(r"\\.|.", text, re.DOTALL):
        if part == "*":
            pieces.append("")
        else:
            pieces[-1] += part[-1]
    return pieces


def _in_order(pieces: list[str], value: str, start: int, end: int) -> bool:
    for piece in pieces:
        found = value.find(piece, start, end)
        if found < 0:
            return False
        start = found + len(piece)
    return True
