"""What botocore sends is what an operation gets, and what it gives is what botocore's user sees."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

import pytest
from hypothesis import given, settings, strategies as st

from gateways.sqs_server.protocol import OPERATIONS, Call, parse, render

from .botocore_side import (
    OPERATION_NAMES,
    XML_TEXT,
    operation,
    serialise,
    understand,
    values_of,
)

PROTOCOLS = ["json", "query"]
ANY_TEXT = st.text(st.characters(codec="utf-8"))


def parsed(request: Any) -> Call:
    url = urlsplit(request.url)
    headers = {
        name.lower(): value.decode() if isinstance(value, bytes) else str(value)
        for name, value in request.headers.items()
    }
    body = request.body.encode() if isinstance(request.body, str) else request.body
    return parse(url.path, url.query, headers, body or b"")


def call_of(name: str, protocol: str) -> Call:
    return Call(
        operation=name,
        parameters={},
        account="000000000000",
        region="us-east-1",
        base_url="http://localhost",
        sender="test",
        is_json=protocol == "json",
    )


def test_when_the_api_has_an_operation_then_the_server_knows_it() -> None:
    assert set(OPERATIONS) == set(OPERATION_NAMES)


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("name", OPERATION_NAMES)
@settings(max_examples=15)
@given(data=st.data())
def test_when_botocore_sends_parameters_then_the_call_has_exactly_them(
    data: st.DataObject, name: str, protocol: str
) -> None:
    shape = operation(protocol, name).input_shape
    parameters = data.draw(values_of(shape, ANY_TEXT))

    call = parsed(serialise(protocol, name, parameters))

    assert call.operation == name
    assert call.parameters == parameters
    assert call.is_json == (protocol == "json")


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("name", OPERATION_NAMES)
@settings(max_examples=15)
@given(data=st.data())
def test_when_an_operation_gives_a_result_then_botocores_user_sees_exactly_it(
    data: st.DataObject, name: str, protocol: str
) -> None:
    shape = operation(protocol, name).output_shape
    result = {} if shape is None else data.draw(values_of(shape, XML_TEXT))

    answer = render(call_of(name, protocol), result)

    assert answer.status == 200
    assert understand(protocol, name, answer) == result


@settings(max_examples=200)
@given(body=XML_TEXT)
def test_when_a_body_is_anything_xml_can_carry_then_xml_carries_it_unchanged(body: str) -> None:
    answer = render(call_of("ReceiveMessage", "query"), {"Messages": [{"Body": body}]})

    assert understand("query", "ReceiveMessage", answer) == {"Messages": [{"Body": body}]}


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_when_a_batch_is_empty_then_the_call_has_an_empty_list(protocol: str) -> None:
    call = parsed(serialise(protocol, "SendMessageBatch", {"QueueUrl": "q", "Entries": []}))

    assert call.parameters == {"QueueUrl": "q", "Entries": []}


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_when_a_batch_has_eleven_entries_then_they_keep_their_order(protocol: str) -> None:
    entries = [{"Id": str(number), "MessageBody": "x"} for number in range(11)]

    call = parsed(serialise(protocol, "SendMessageBatch", {"QueueUrl": "q", "Entries": entries}))

    assert call.parameters["Entries"] == entries
