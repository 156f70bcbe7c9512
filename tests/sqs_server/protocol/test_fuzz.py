"""Whatever comes over the wire, `parse` understands it or refuses it as SQS would."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

from hypothesis import given, settings, strategies as st

from gateways.sqs_server.errors import SqsError
from gateways.sqs_server.protocol import OPERATIONS, parse, render_error

OPERATION = st.sampled_from(sorted(OPERATIONS))
# As aiohttp decodes them: bytes that are not UTF-8 become surrogates.
HEADER = st.binary(max_size=60).map(lambda raw: raw.decode(errors="surrogateescape"))
MEMBER = st.sampled_from(
    ["QueueUrl", "Entries", "Attributes", "MessageAttributes", "DelaySeconds", "AttributeNames"]
)
SEGMENT = st.one_of(
    st.sampled_from(["Attribute", "MessageAttribute", "Name", "Value", "1", "2", "member", ""]),
    st.sampled_from(["SendMessageBatchRequestEntry", "Id", "BinaryValue", "DelaySeconds", "Tag"]),
    st.text(st.characters(codec="utf-8"), max_size=5),
)


def feed(path: str, query: str, headers: dict[str, str], body: bytes) -> None:
    try:
        parse(path, query, headers, body)
    except SqsError as error:
        answer = render_error(error, headers)
        assert 400 <= answer.status < 500


@settings(max_examples=300)
@given(path=st.text(), query=st.text(), body=st.binary(), host=HEADER, authorization=HEADER)
def test_when_the_request_is_noise_then_parse_raises_nothing_but_refusals(
    path: str, query: str, body: bytes, host: str, authorization: str
) -> None:
    feed(path, query, {"host": host, "authorization": authorization}, body)


@settings(max_examples=300)
@given(operation=OPERATION | HEADER, body=st.binary())
def test_when_a_json_body_is_noise_then_parse_raises_nothing_but_refusals(
    operation: str, body: bytes
) -> None:
    feed("/", "", {"x-amz-target": f"AmazonSQS.{operation}"}, body)


json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(MEMBER, inner, max_size=3),
    max_leaves=10,
)


@settings(max_examples=300)
@given(operation=OPERATION, parameters=json_values)
def test_when_json_has_any_structure_then_parse_raises_nothing_but_refusals(
    operation: str, parameters: Any
) -> None:
    feed("/", "", {"x-amz-target": f"AmazonSQS.{operation}"}, json.dumps(parameters).encode())


@settings(max_examples=300)
@given(
    operation=OPERATION,
    fields=st.lists(
        st.tuples(
            st.lists(SEGMENT, min_size=1, max_size=12),
            st.text(st.characters(codec="utf-8"), max_size=5),
        )
    ),
)
def test_when_a_form_has_any_structure_then_parse_raises_nothing_but_refusals(
    operation: str, fields: list[tuple[list[str], str]]
) -> None:
    pairs = [f"{quote('.'.join(name))}={quote(value)}" for name, value in fields]

    feed("/", "&".join([f"Action={operation}", *pairs]), {}, b"")
