"""Reading patterns: from JSON's values to a pattern, or an error that names the place. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import isfinite
from typing import Any, Final

from .comparisons import (
    NUMERIC,
    AnythingBut,
    Comparison,
    Exactly,
    Exists,
    Numeric,
    Prefix,
    SameLetters,
    Scalar,
    Suffix,
    Wildcard,
    is_number,
)
from .entry import Unusable, unknown_key
from .patterns import Fields, Leaf

OR: Final = "$or"
_MAX_DEPTH: Final = 30
"""Far below what Python's stack allows, far above what anyone writes."""
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
