"""Event patterns: whether an event is one of those that a pattern describes. Pure.

A pattern has the shape of the event. Fields of one table must all match, alternatives of a list
need only one to: `{"body": {"kind": ["order", {"prefix": "re-"}], "total": [{"numeric": [">",
0]}]}}`; `$or` takes a list of tables of which one must match. Only leaves are compared: a list
in the event offers each of its values, a table offers none. Inside a list of tables, one table
must match the whole of what the pattern asks there.
"""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import isfinite
from typing import Any, Final, NoReturn

import attrs

from .entry import Unusable, unknown_key


@attrs.frozen
class Leaf:
    """What one value is compared with; one comparison has to hold."""

    comparisons: tuple[Comparison, ...]


@attrs.frozen
class Fields:
    """What a table's fields are compared with; all have to hold."""

    fields: tuple[tuple[str, Leaf | Fields], ...]
    choices: tuple[tuple[Fields, ...], ...] = ()
    """Of each, one has to hold: `$or`."""


def matches(pattern: Fields, event: Mapping[str, Any]) -> bool:
    """Whether the event is as the pattern asks."""
    return all(_holds(node, event.get(name, ())) for name, node in pattern.fields) and all(
        any(matches(choice, event) for choice in choices) for choices in pattern.choices
    )


def _holds(node: Leaf | Fields, found: object) -> bool:
    if isinstance(node, Leaf):
        return _accepts(node, tuple(_values(found)))
    # Without a table, "does not exist" must still be able to hold further in.
    return any(matches(node, table) for table in _tables(found) or [{}])


def _accepts(leaf: Leaf, values: tuple[Scalar, ...]) -> bool:
    return any(
        comparison.wanted == bool(values)
        if isinstance(comparison, Exists)
        else any(map(comparison.accepts, values))
        for comparison in leaf.comparisons
    )


def _values(found: object) -> Iterator[Scalar]:
    return (each for each in _flat(found) if not isinstance(each, Mapping))


def _tables(found: object) -> list[Mapping[str, Any]]:
    return [each for each in _flat(found) if isinstance(each, Mapping)]


def _flat(found: object) -> Iterator[Any]:
    # Without recursion: JSON may nest lists deeper than Python's stack is.
    rest = [found]
    while rest:
        value = rest.pop()
        if isinstance(value, list | tuple):
            rest.extend(reversed(value))
        else:
            yield value


# Comparisons: what an event pattern may ask of one value. Pure.
#
# Values are JSON's: text, numbers, true, false and null. True is not 1 here, and 1 is 1.0.

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


# Reading patterns: from JSON's values to a pattern, or an error that names the place. Pure.

OR: Final = "$or"
_MAX_DEPTH: Final = 30
"""Far below what Python's stack allows, far above what is written in practice."""
_IGNORE_CASE: Final = "equals-ignore-case"


def read_pattern(value: object, path: str = "", depth: int = 0) -> Fields:
    """The pattern in a table. Raises `Unusable`, whose text names the place and the remedy."""
    if depth > _MAX_DEPTH:
        raise _wrong(path, f"tables in tables, {_MAX_DEPTH} deep, are enough")
    fields: list[tuple[str, Leaf | Fields]] = []
    choices: list[tuple[Fields, ...]] = []
    for name, content in _table(value, path).items():
        place = f"{path}.{name}" if path else name
        if name == OR:
            choices.append(_read_choices(content, place, depth))
        elif isinstance(content, dict):
            fields.append((name, read_pattern(content, place, depth + 1)))
        else:
            fields.append((name, _read_leaf(content, place)))
    return Fields(tuple(fields), tuple(choices))


def _table(value: object, path: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise _wrong(path, 'write a table, such as {"body": {"kind": ["order"]}}')
    if not value:
        raise _wrong(path, "an empty pattern says nothing; leave it out")
    for name in value:
        if not isinstance(name, str):
            raise _wrong(path, f"the key {name!r} is not text; put it in quotes")
    return value


def _read_choices(value: object, path: str, depth: int) -> tuple[Fields, ...]:
    if not isinstance(value, list) or len(value) < 2:
        raise _wrong(path, "write a list of at least two tables")
    return tuple(
        read_pattern(each, f"{path}[{index}]", depth + 1) for index, each in enumerate(value)
    )


def _read_leaf(value: object, path: str) -> Leaf:
    if not isinstance(value, list):
        raise _wrong(path, f"values stand in a list; write [{value!r}]")
    if not value:
        raise _wrong(path, "an empty list matches nothing; name the values")
    return Leaf(tuple(_read_comparison(each, path) for each in value))


def _read_comparison(value: object, path: str) -> Comparison:
    if not isinstance(value, dict):
        return Exactly(_scalar(value, path))
    if len(value) != 1:
        raise _wrong(path, f"one comparison a table, not {len(value)}")
    [(name, content)] = value.items()
    read = _READERS.get(name)
    if read is None:
        raise _wrong(path, f"{name}: {unknown_key(name, list(_READERS))}")
    return read(content, f"{path}.{name}")


def _scalar(value: object, path: str) -> Scalar:
    if value is None or isinstance(value, str | bool):
        return value
    if _is_finite(value) and isinstance(value, int | float):
        return value
    raise _wrong(path, f"{value!r} is not text, a number, true, false or null; put it in quotes")


def _is_finite(value: object) -> bool:
    return is_number(value) and not (isinstance(value, float) and not isfinite(value))


def _text(value: object, path: str) -> str:
    if not isinstance(value, str) or not value:
        raise _wrong(path, "write some text")
    return value


def _read_end(kind: type[Prefix] | type[Suffix], value: object, path: str) -> Prefix | Suffix:
    if isinstance(value, dict) and list(value) == [_IGNORE_CASE]:
        return kind(_text(value[_IGNORE_CASE], f"{path}.{_IGNORE_CASE}"), True)
    return kind(_text(value, path))


def _read_prefix(value: object, path: str) -> Comparison:
    return _read_end(Prefix, value, path)


def _read_suffix(value: object, path: str) -> Comparison:
    return _read_end(Suffix, value, path)


def _read_same_letters(value: object, path: str) -> SameLetters:
    return SameLetters(_text(value, path))


def _read_wildcard(value: object, path: str) -> Wildcard:
    text = _text(value, path)
    unescaped = text.replace("\\\\", "").replace("\\*", "")
    if "**" in unescaped:
        raise _wrong(path, "two stars in a row mean what one does; write one")
    if "\\" in unescaped:
        raise _wrong(path, r"after a backslash comes * or another backslash")
    return Wildcard(text)


def _read_exists(value: object, path: str) -> Exists:
    if not isinstance(value, bool):
        raise _wrong(path, "write true or false")
    return Exists(value)


def _read_numeric(value: object, path: str) -> Numeric:
    remedy = 'write one or two tests, such as [">", 0, "<=", 5]'
    if not isinstance(value, list) or len(value) not in (2, 4):
        raise _wrong(path, remedy)
    tests = tuple(zip(value[::2], value[1::2], strict=True))
    if not all(sign in list(NUMERIC) and _is_finite(limit) for sign, limit in tests):
        raise _wrong(path, remedy)
    if len(tests) == 2 and not (tests[0][0] in (">", ">=") and tests[1][0] in ("<", "<=")):
        raise _wrong(path, "a range begins with > or >= and ends with < or <=")
    if len(tests) == 2 and tests[0][1] >= tests[1][1]:
        raise _wrong(path, "the range is empty; its end must be above its beginning")
    return Numeric(tests)


def _read_anything_but(value: object, path: str) -> AnythingBut:
    if isinstance(value, dict):
        [name] = list(value) if len(value) == 1 else [""]
        read = _NESTED.get(name)
        if read is None:
            raise _wrong(path, f"use a value, a list, or one of {', '.join(_NESTED)}")
        texts = value[name] if isinstance(value[name], list) else [value[name]]
        return AnythingBut(tuple(read(_text(text, path)) for text in _some(texts, path)))
    values = value if isinstance(value, list) else [value]
    refused = tuple(Exactly(_scalar(each, path)) for each in _some(values, path))
    if len({is_number(each.wanted) for each in refused}) > 1:
        raise _wrong(path, "AWS takes a list of texts or a list of numbers, not both in one")
    return AnythingBut(refused)


def _some(values: list[Any], path: str) -> list[Any]:
    if not values:
        raise _wrong(path, "name at least one value")
    return values


def _wrong(path: str, remedy: str) -> Unusable:
    return Unusable(f"{path}: {remedy}" if path else remedy)


_NESTED: Final[Mapping[str, type[Prefix | Suffix | SameLetters | Wildcard]]] = {
    "prefix": Prefix,
    "suffix": Suffix,
    _IGNORE_CASE: SameLetters,
    "wildcard": Wildcard,
}
_READERS: Final[Mapping[str, Callable[[object, str], Comparison]]] = {
    "prefix": _read_prefix,
    "suffix": _read_suffix,
    _IGNORE_CASE: _read_same_letters,
    "wildcard": _read_wildcard,
    "numeric": _read_numeric,
    "exists": _read_exists,
    "anything-but": _read_anything_but,
}


# Filters: which records of a queue a function is to see. Pure.
#
# A filter is an event pattern on the record that the function would get, with one law of its own:
# `body` is compared as JSON where the pattern has a table there and as text where it has a list,
# and a message whose body is of the other kind does not pass.

RECORD_KEYS: Final = (
    "messageId",
    "receiptHandle",
    "body",
    "attributes",
    "messageAttributes",
    "md5OfBody",
    "md5OfMessageAttributes",
    "eventSource",
    "eventSourceARN",
    "awsRegion",
)
MAX_FILTERS: Final = 10
"""AWS gives five, and ten on request."""
_MAX_CHARACTERS: Final = 4_096
_BODY: Final = "body"


@attrs.frozen
class Filter:
    """One pattern."""

    pattern: Fields

    def passes(self, record: Mapping[str, Any], document: object) -> bool:
        """Whether a record matches; `document` is its body as `parse_body` gives it."""
        kinds = {isinstance(node, Fields) for node in _body_patterns(self.pattern)}
        is_document = document is not None
        if kinds and is_document not in kinds:
            return False
        return matches(self.pattern, {**record, _BODY: document} if is_document else record)

    def uses_more_than_the_body(self) -> bool:
        """Whether it asks for something that AWS's filters for SQS do not look at."""
        return any(name != _BODY for name in _names(self.pattern))


def passes(filters: Sequence[Filter], record: Mapping[str, Any]) -> bool:
    """Whether a function is to see the record: one filter matches, or there is none."""
    if not filters:
        return True
    document = parse_body(record[_BODY])
    return any(each.passes(record, document) for each in filters)


def parse_body(body: str) -> dict[str, Any] | list[Any] | None:
    """The JSON table or list that a body is; None for all else, which is compared as text."""
    if not body.lstrip().startswith(("{", "[")):
        return None
    try:
        document: dict[str, Any] | list[Any] = json.loads(body, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return None
    return document


def read_filters(value: object) -> tuple[Filter, ...]:
    """The filters in `filter_criteria`: a list of patterns, or what AWS calls FilterCriteria.

    A pattern is a table, or text that holds its JSON. Raises `Unusable`.
    """
    if isinstance(value, dict) and list(value) == ["Filters"]:
        value = value["Filters"]
    if not isinstance(value, list):
        raise Unusable('write a list of patterns, such as [{"body": {"kind": ["order"]}}]')
    if len(value) > MAX_FILTERS:
        raise Unusable(f"AWS takes at most {MAX_FILTERS} filters; join some with $or")
    return tuple(_read_filter(each, f"[{index}]") for index, each in enumerate(value))


def _read_filter(value: object, path: str) -> Filter:
    if isinstance(value, dict) and list(value) == ["Pattern"]:
        value = value["Pattern"]
    if isinstance(value, str):
        try:
            value = json.loads(value, parse_constant=_refuse)
        except (ValueError, RecursionError) as error:
            raise Unusable(f"{path}: this text is not JSON ({error}); correct it") from None
    pattern = read_pattern(value, path)
    if len(json.dumps(value)) > _MAX_CHARACTERS:
        raise Unusable(f"{path}: AWS takes at most {_MAX_CHARACTERS} characters of JSON a pattern")
    for name in _names(pattern):
        if name not in RECORD_KEYS:
            raise Unusable(f"{path}.{name}: {unknown_key(name, list(RECORD_KEYS))}")
    return Filter(pattern)


def _names(pattern: Fields) -> Iterator[str]:
    yield from (name for name, _ in pattern.fields)
    for choices in pattern.choices:
        for choice in choices:
            yield from _names(choice)


def _body_patterns(pattern: Fields) -> Iterator[object]:
    yield from (node for name, node in pattern.fields if name == _BODY)
    for choices in pattern.choices:
        for choice in choices:
            yield from _body_patterns(choice)


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")
