"""Which messages a mapping's filters let through (R46)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateways.sqs_server.config.entry import Unusable
from gateways.sqs_server.config.patterns import parse_body, passes, read_filters


def record(body: str, **more: Any) -> dict[str, Any]:
    return {"messageId": "id", "body": body, "attributes": {}, "messageAttributes": {}, **more}


@pytest.mark.parametrize(
    ("criteria", "body", "is_so"),
    [
        ([], "anything", True),
        ([{"body": {"kind": ["order"]}}], '{"kind": "order"}', True),
        ([{"body": {"kind": ["order"]}}], '{"kind": "bill"}', False),
        ([{"body": {"kind": ["order"]}}], "order", False),
        ([{"body": {"kind": [{"exists": False}]}}], "{}", True),
        # AWS drops a body whose format does not fit the pattern's, whatever the pattern asks.
        ([{"body": {"kind": [{"exists": False}]}}], "text", False),
        ([{"body": [{"prefix": "Result: "}]}], "Result: 5", True),
        ([{"body": [{"anything-but": "x"}]}], '{"a": "b"}', False),
        ([{"body": ["a"]}], '["a"]', False),
        ([{"body": ["42"]}], "42", True),
        ([{"body": ["{not json"]}], "{not json", True),
        ([{"body": ["a"]}, {"body": {"a": [1]}}], '{"a": 1}', True),
        ([{"body": ["a"]}, {"body": {"a": [1]}}], "a", True),
        ([{"$or": [{"body": ["a"]}, {"body": {"a": [1]}}]}], "a", True),
        ([{"$or": [{"body": ["a"]}, {"body": {"a": [1]}}]}], '{"a": 1}', True),
        ([{"messageId": ["id"]}], "whatever", True),
        ([{"messageId": ["id"]}], '{"a": 1}', True),
        (['{"body": {"kind": ["order"]}}'], '{"kind": "order"}', True),
        ({"Filters": [{"Pattern": '{"body": {"kind": ["order"]}}'}]}, '{"kind": "order"}', True),
        ([{"body": {"a": [1]}}], '[{"a": 1}]', True),
        ([{"body": {"test2": [{"numeric": [">", 100]}]}}], "this is a test string", False),
    ],
)
def test_a_message_passes_when_a_filter_matches(criteria: Any, body: str, is_so: bool) -> None:
    assert passes(read_filters(criteria), record(body)) is is_so


def test_attributes_may_be_asked_for_though_aws_documents_bodies_only() -> None:
    filters = read_filters([{"messageAttributes": {"kind": {"stringValue": ["order"]}}}])
    attributes = {"kind": {"stringValue": "order", "dataType": "String"}}

    assert passes(filters, record("x", messageAttributes=attributes))
    assert not passes(filters, record("x"))
    assert filters[0].uses_more_than_the_body()
    assert not read_filters([{"body": ["a"]}])[0].uses_more_than_the_body()


@pytest.mark.parametrize(
    "body", ["NaN", '{"a": NaN}', "{", "[" * 100_000, '{"a": 1' + "0" * 5_000 + "}", "", "null"]
)
def test_what_is_no_json_document_is_text(body: str) -> None:
    assert parse_body(body) is None


def test_white_space_before_a_document_does_not_matter() -> None:
    assert parse_body(' \n{"a": 1}') == {"a": 1}


@pytest.mark.parametrize(
    ("criteria", "words"),
    [
        ("simple string", "list of patterns"),
        (["simple string"], "not JSON"),
        (["null"], "write a table"),
        ([{"eventSource": "aws:sqs"}], "values stand in a list"),
        ([{"eventSource": []}], "matches nothing"),
        ([{"Body": ["a"]}], "did you mean body?"),
        ([{"$or": [{"body": ["a"]}, {"bdy": ["a"]}]}], "did you mean body?"),
        ([{"body": ["a"]}] * 11, "at most 10"),
        ([{"body": ["a" * 5_000]}], "4096"),
        (["[" * 100_000], "not JSON"),
        ({"filters": []}, "list of patterns"),
    ],
)
def test_when_criteria_cannot_work_then_a_remedy_is_given(criteria: Any, words: str) -> None:
    with pytest.raises(Unusable) as caught:
        read_filters(criteria)

    assert words in str(caught.value)


def test_patterns_in_text_and_as_tables_are_the_same() -> None:
    pattern = {"body": {"kind": ["order", {"prefix": "re"}]}}

    assert read_filters([pattern]) == read_filters([json.dumps(pattern)])
