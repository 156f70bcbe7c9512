"""What a function's answer says about its batch, as AWS documents it (R46)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, strategies as st

from gateways.sqs_server.mappings.invoking import (
    MAX_ANSWER_BYTES,
    MalformedResponse,
    as_json,
    failed_ids,
)

SENT = frozenset({"one", "two", "three"})


@pytest.mark.parametrize(
    "answer",
    [None, {}, "", [], {"batchItemFailures": None}, {"batchItemFailures": []}, {"statusCode": 200}],
)
def test_when_nothing_is_reported_then_all_succeeded(answer: object) -> None:
    assert failed_ids(answer, SENT) == frozenset()


def test_when_ids_are_reported_then_exactly_those_failed() -> None:
    answer = {"batchItemFailures": [{"itemIdentifier": "two"}, {"itemIdentifier": "two"}]}

    assert failed_ids(answer, SENT) == {"two"}


@pytest.mark.parametrize(
    "answer",
    [
        "batchItemFailures",
        ["two"],
        1,
        True,
        {"batchItemFailures": {"itemIdentifier": "two"}},
        {"batchItemFailures": "two"},
        {"batchItemFailures": ["two"]},
        {"batchItemFailures": [None]},
        {"batchItemFailures": [{}]},
        {"batchItemFailures": [{"itemIdentifier": ""}]},
        {"batchItemFailures": [{"itemIdentifier": None}]},
        {"batchItemFailures": [{"itemIdentifier": 2}]},
        {"batchItemFailures": [{"ItemIdentifier": "two"}]},
        {"batchItemFailures": [{"itemIdentifier": "two"}, {"itemIdentifier": "four"}]},
    ],
)
def test_when_the_answer_makes_no_sense_then_it_is_malformed(answer: object) -> None:
    with pytest.raises(MalformedResponse):
        failed_ids(answer, SENT)


@pytest.mark.parametrize("value", [object(), {1, 2}, b"bytes", {"a": object()}, {(1, 2): 3}])
def test_when_json_cannot_hold_the_value_then_it_is_malformed(value: object) -> None:
    with pytest.raises(MalformedResponse):
        as_json(value)


@pytest.mark.parametrize(("letter", "weight"), [("x", 1), ("é", 2), ("\ud800", 3)])
def test_when_the_value_weighs_more_than_lambda_takes_then_it_is_malformed(
    letter: str, weight: int
) -> None:
    whole = letter * ((MAX_ANSWER_BYTES - 2) // weight)
    assert as_json(whole) == whole

    with pytest.raises(MalformedResponse, match="6,291,556 bytes"):
        as_json([whole, letter])


def test_what_a_json_value_is_stays_as_it_is() -> None:
    value: dict[str, Any] = {"a": [1, 2.5, None, True, "é", {}], "b": {"c": ()}}

    assert as_json(value) == {"a": [1, 2.5, None, True, "é", {}], "b": {"c": []}}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@given(JSON | st.fixed_dictionaries({"batchItemFailures": JSON}))
def test_whatever_is_answered_only_ids_of_the_batch_can_be_said_to_have_failed(answer: Any) -> None:
    try:
        assert failed_ids(answer, SENT) <= SENT
    except MalformedResponse:
        assert answer not in (None, {}, "", [])
