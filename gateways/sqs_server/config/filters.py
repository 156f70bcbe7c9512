"""Filters: which records of a queue a function is to see. Pure.

A filter is an event pattern on the record that the function would get, with one law of its own:
`body` is compared as JSON where the pattern has a table there and as text where it has a list,
and a message whose body is of the other kind does not pass.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NoReturn

import attrs

from .entry import Unusable, unknown_key
from .pattern_reading import read_pattern
from .patterns import Fields, matches

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
"""AWS gives five, and ten to those who ask."""
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
