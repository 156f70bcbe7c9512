"""Event patterns: whether an event is one of those that a pattern describes. Pure.

A pattern has the shape of the event. Fields of one table must all match, alternatives of a list
need only one to: `{"body": {"kind": ["order", {"prefix": "re-"}], "total": [{"numeric": [">",
0]}]}}`; `$or` takes a list of tables of which one must match. Only leaves are compared: a list
in the event offers each of its values, a table offers none. Inside a list of tables, one table
must match the whole of what the pattern asks there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import attrs

from .comparisons import Comparison, Exists, Scalar


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
