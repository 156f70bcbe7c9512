"""Event patterns match what AWS's would (R46)."""

from __future__ import annotations

import pickle
import re
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, strategies as st

from gateways.sqs_server.config.entry import Unusable
from gateways.sqs_server.config.patterns import matches, read_pattern


def is_match(pattern: dict[str, Any], event: dict[str, Any]) -> bool:
    return matches(read_pattern(pattern), event)


@pytest.mark.parametrize(
    ("comparisons", "accepted", "refused"),
    [
        (["a", "b"], ["a", "b"], ["c", "", 1, None, True]),
        ([""], [""], ["a", None, 0, False]),
        ([None], [None], ["", 0, False, "null"]),
        ([True], [True], [1, "true", False]),
        ([1], [1, 1.0], [True, "1", 2]),
        ([{"prefix": "eu-"}], ["eu-", "eu-west-1"], ["EU-west-1", "us-eu-", "", 5]),
        ([{"prefix": {"equals-ignore-case": "Eu-"}}], ["eU-x"], ["us-x"]),
        ([{"suffix": ".png"}], [".png", "a.png"], ["a.PNG", "png", None]),
        ([{"suffix": {"equals-ignore-case": ".PNG"}}], ["a.png"], ["a.jpg"]),
        ([{"equals-ignore-case": "Alice"}], ["ALICE", "alice"], ["alicea", "", 1]),
        ([{"wildcard": "*/lib/*"}], ["/lib/", "usr/lib/x"], ["lib", "/lib", None]),
        ([{"wildcard": "a*b"}], ["ab", "a-b", "abab"], ["a", "b", "aba"]),
        ([{"wildcard": r"a\*\\*"}], ["a*\\", "a*\\x"], ["aa\\", "a*"]),
        ([{"numeric": ["=", 5]}], [5, 5.0], ["5", 6, True]),
        ([{"numeric": [">", 0, "<=", 5]}], [1, 5, 0.1], [0, 5.1, -1, "3", None]),
        ([{"numeric": [">=", 0]}, "none"], [0, "none"], [-1, "some"]),
        ([{"exists": True}], ["a", None, 0, "", False], []),
        ([{"anything-but": "a"}], ["b", "", 1, None, True], ["a"]),
        ([{"anything-but": [1, 2]}], [3, "1", True], [1, 2, 2.0]),
        ([{"anything-but": {"prefix": "eu-"}}], ["us", 1], ["eu-1"]),
        ([{"anything-but": {"suffix": ["x", "y"]}}], ["z"], ["ax", "ay"]),
        ([{"anything-but": {"equals-ignore-case": ["A", "B"]}}], ["c"], ["a", "b"]),
        ([{"anything-but": {"wildcard": "*/lib/*"}}], ["lib"], ["/lib/"]),
    ],
)
def test_a_comparison_accepts_and_refuses(
    comparisons: list[Any], accepted: list[Any], refused: list[Any]
) -> None:
    assert [value for value in accepted if not is_match({"a": comparisons}, {"a": value})] == []
    assert [value for value in refused if is_match({"a": comparisons}, {"a": value})] == []


@pytest.mark.parametrize("comparison", ["a", None, {"anything-but": "a"}, {"exists": True}])
@pytest.mark.parametrize("event", [{}, {"a": {}}, {"a": {"b": "a"}}, {"a": []}])
def test_when_there_is_no_value_then_only_its_absence_matches(
    comparison: Any, event: dict[str, Any]
) -> None:
    """Only leaves are values: a table, and a list of nothing, offers none."""
    assert not is_match({"a": [comparison]}, event)
    assert is_match({"a": [{"exists": False}]}, event)


@pytest.mark.parametrize(
    ("pattern", "event", "is_so"),
    [
        ({"a": ["x"], "b": ["y"]}, {"a": "x", "b": "y"}, True),
        ({"a": ["x"], "b": ["y"]}, {"a": "x"}, False),
        ({"a": {"b": {"c": [1]}}}, {"a": {"b": {"c": 1, "d": 2}}}, True),
        ({"a": {"b": ["x"]}}, {"a": "x"}, False),
        ({"a": {"b": [{"exists": False}]}}, {}, True),
        ({"a": {"b": [{"exists": False}]}}, {"a": 5}, True),
        ({"a": ["x"]}, {"a": ["w", "x"]}, True),
        ({"a": ["x"]}, {"a": [["w", ["x"]]]}, True),
        ({"a": {"b": [1], "c": [2]}}, {"a": [{"b": 1, "c": 2}]}, True),
        ({"a": {"b": [1], "c": [2]}}, {"a": [{"b": 1}, {"c": 2}]}, False),
        ({"$or": [{"a": [1]}, {"b": [2]}]}, {"b": 2}, True),
        ({"$or": [{"a": [1]}, {"b": [2]}]}, {"a": 2, "b": 1}, False),
        ({"c": [3], "$or": [{"a": [1]}, {"b": [2]}]}, {"b": 2}, False),
        ({"d": {"$or": [{"a": [1]}, {"b": [2]}]}}, {"d": {"a": 1}}, True),
    ],
)
def test_a_pattern_has_the_shape_of_its_event(
    pattern: dict[str, Any], event: dict[str, Any], is_so: bool
) -> None:
    assert is_match(pattern, event) is is_so


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ([], "write a table"),
        ({}, "empty pattern"),
        ({"body": {}}, "body: an empty pattern"),
        ({"body": "order"}, "body: values stand in a list; write ['order']"),
        ({"body": {"kind": "order"}}, "body.kind: values stand in a list"),
        ({"body": {"kind": None}}, "body.kind: values stand in a list"),
        ({"body": {"kind": []}}, "matches nothing"),
        ({"body": {5: ["a"]}}, "put it in quotes"),
        ({"body": {"a": [["b"]]}}, "not text, a number"),
        ({"body": {"a": [float("inf")]}}, "not text, a number"),
        ({"body": {"a": [{"prefx": "b"}]}}, "body.a: prefx: there is no such key; did you mean"),
        ({"body": {"a": [{}]}}, "one comparison a table, not 0"),
        ({"body": {"a": [{"prefix": "a", "suffix": "b"}]}}, "one comparison a table, not 2"),
        ({"body": {"a": [{"prefix": 5}]}}, "write some text"),
        ({"body": {"a": [{"prefix": {"suffix": "a"}}]}}, "write some text"),
        ({"body": {"a": [{"suffix": ""}]}}, "write some text"),
        ({"body": {"a": [{"exists": "true"}]}}, "true or false"),
        ({"body": {"a": [{"numeric": 5}]}}, "one or two tests"),
        ({"body": {"a": [{"numeric": [">"]}]}}, "one or two tests"),
        ({"body": {"a": [{"numeric": [">", "5"]}]}}, "one or two tests"),
        ({"body": {"a": [{"numeric": ["!=", 5]}]}}, "one or two tests"),
        ({"body": {"a": [{"numeric": [[], 5]}]}}, "one or two tests"),
        ({"body": {"a": [{"numeric": [">", True]}]}}, "one or two tests"),
        ({"body": {"a": [{"numeric": ["<", 5, ">", 1]}]}}, "begins with >"),
        ({"body": {"a": [{"numeric": [">", 5, "<", 5]}]}}, "range is empty"),
        ({"body": {"a": [{"wildcard": "a**b"}]}}, "two stars"),
        ({"body": {"a": [{"wildcard": "a\\b"}]}}, "after a backslash"),
        ({"body": {"a": [{"anything-but": []}]}}, "at least one"),
        ({"body": {"a": [{"anything-but": {}}]}}, "use a value, a list, or one of"),
        ({"body": {"a": [{"anything-but": {"numeric": ["=", 1]}}]}}, "use a value, a list"),
        ({"body": {"a": [{"anything-but": {"prefix": []}}]}}, "at least one"),
        ({"body": {"a": [{"anything-but": ["a", 1]}]}}, "not both"),
        ({"$or": [{"a": [1]}]}, "at least two"),
        ({"$or": {"a": [1]}}, "at least two"),
        ({"$or": [{"a": [1]}, {"b": 2}]}, "$or[1].b: values stand in a list"),
    ],
)
def test_when_a_pattern_cannot_work_then_the_place_and_a_remedy_are_named(
    pattern: Any, words: str
) -> None:
    with pytest.raises(Unusable, match=re.escape(words)):
        read_pattern(pattern)


def test_when_tables_are_nested_too_deep_then_the_pattern_is_refused() -> None:
    pattern: dict[str, Any] = {"a": [1]}
    for _ in range(40):
        pattern = {"a": pattern}

    with pytest.raises(Unusable, match="deep"):
        read_pattern(pattern)


def test_numbers_of_any_size_can_be_compared() -> None:
    assert is_match({"a": [10**400]}, {"a": 10**400})
    assert not is_match({"a": [{"numeric": [">", 10**400]}]}, {"a": 1.5})


SCALARS = (
    st.none() | st.booleans() | st.integers(-5, 5) | st.floats(-5, 5) | st.text("abAB", max_size=3)
)
NAMES = st.text("abc", min_size=1, max_size=2)
EVENTS = st.dictionaries(
    NAMES,
    st.recursive(
        SCALARS,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
        max_leaves=6,
    ),
    max_size=4,
)
TEXTS = st.text("abAB", min_size=1, max_size=3)
COMPARISONS = st.one_of(
    SCALARS,
    st.builds(lambda key, text: {key: text}, st.sampled_from(["prefix", "suffix"]), TEXTS),
    st.builds(lambda text: {"equals-ignore-case": text}, TEXTS),
    st.builds(lambda text: {"anything-but": text}, TEXTS),
    st.builds(lambda wanted: {"exists": wanted}, st.booleans()),
    st.builds(
        lambda sign, limit: {"numeric": [sign, limit]},
        st.sampled_from(["=", "<", "<=", ">", ">="]),
        st.integers(-5, 5),
    ),
)
LEAVES = st.lists(COMPARISONS, min_size=1, max_size=3)
PATTERNS = st.dictionaries(
    NAMES,
    st.recursive(
        LEAVES, lambda inner: st.dictionaries(NAMES, inner, min_size=1, max_size=2), max_leaves=4
    ),
    min_size=1,
    max_size=3,
)


def exact(event: Any) -> Any:
    """The pattern that asks for each value of an event; None where it offers none."""
    if isinstance(event, dict):
        fields = {name: exact(value) for name, value in event.items()}
        return {name: value for name, value in fields.items() if value is not None} or None
    if isinstance(event, list):
        return exact(event[0]) if event else None
    return [event]


@given(EVENTS)
def test_every_event_matches_the_pattern_made_of_its_own_values(event: dict[str, Any]) -> None:
    pattern = exact(event)

    assert pattern is None or is_match(pattern, event)


@given(PATTERNS, EVENTS)
def test_more_fields_in_an_event_take_no_match_away_unless_absence_is_asked_for(
    pattern: dict[str, Any], event: dict[str, Any]
) -> None:
    assert not is_match(pattern, event) or is_match(pattern, event | {"other": 1})


@given(PATTERNS, PATTERNS, EVENTS)
def test_or_matches_when_one_of_its_choices_does(
    one: dict[str, Any], other: dict[str, Any], event: dict[str, Any]
) -> None:
    assert is_match({"$or": [one, other]}, event) == (
        is_match(one, event) or is_match(other, event)
    )


@given(PATTERNS, PATTERNS, EVENTS)
def test_fields_match_when_all_of_them_do(
    one: dict[str, Any], other: dict[str, Any], event: dict[str, Any]
) -> None:
    both = one | {name: value for name, value in other.items() if name not in one}
    rest = {name: value for name, value in other.items() if name not in one}

    assert is_match(both, event) == (is_match(one, event) and (not rest or is_match(rest, event)))


@given(LEAVES, LEAVES, EVENTS)
def test_alternatives_match_when_one_of_them_does(
    one: list[Any], other: list[Any], event: dict[str, Any]
) -> None:
    assert is_match({"a": one + other}, event) == (
        is_match({"a": one}, event) or is_match({"a": other}, event)
    )


@given(EVENTS)
def test_a_value_is_there_or_is_not(event: dict[str, Any]) -> None:
    assert is_match({"a": [{"exists": True}]}, event) != is_match({"a": [{"exists": False}]}, event)


@given(st.lists(st.text("abAB", max_size=3), min_size=1), SCALARS)
def test_anything_but_is_the_opposite_for_a_value_that_is_there(
    refused: list[Any], value: Any
) -> None:
    event = {"a": value}

    assert is_match({"a": [{"anything-but": refused}]}, event) != is_match({"a": refused}, event)


@given(
    st.text("ab*\\", min_size=1, max_size=8).filter(lambda text: "**" not in text),
    st.text("ab*\\", max_size=8),
)
def test_a_wildcard_matches_as_a_regular_expression_would(text: str, value: str) -> None:
    try:
        pattern = read_pattern({"a": [{"wildcard": text}]})
    except Unusable:
        return
    parts = re.findall(r"\\.|.", text)
    expression = "".join(".*" if part == "*" else re.escape(part[-1]) for part in parts)

    assert matches(pattern, {"a": value}) == bool(re.fullmatch(expression, value))


@given(PATTERNS, EVENTS)
def test_a_pattern_survives_pickling(pattern: dict[str, Any], event: dict[str, Any]) -> None:
    read = read_pattern(pattern)

    assert matches(pickle.loads(pickle.dumps(read)), event) == matches(read, event)


ANYTHING = st.recursive(
    SCALARS | st.sampled_from(["prefix", "numeric", ">", "="]),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["$or", "prefix", "numeric", "anything-but", "exists", "wildcard", "a"])
            | st.integers(0, 1),
            inner,
            max_size=3,
        )
    ),
    max_leaves=8,
)


@given(ANYTHING, EVENTS)
def test_whatever_stands_in_a_file_is_a_pattern_or_refused_in_words(
    value: Any, event: dict[str, Any]
) -> None:
    with suppress(Unusable):
        matches(read_pattern(value), event)
