"""The query protocol, where clients and AWS's own documents are less tidy than botocore."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

import msgspec
import pytest

from gateways.sqs_server.errors import SqsError, missing_action, unknown_operation
from gateways.sqs_server.protocol import Call, parse, render, render_error, speaks_json

HOST = {"host": "localhost:9324"}


def form(path: str = "/", **fields: str) -> Call:
    return parse(path, "", HOST, urlencode(fields).encode())


def named(action: str, fields: dict[str, str], path: str = "/") -> Call:
    return parse(path, urlencode({"Action": action, **fields}), HOST, b"")


def test_when_the_queues_address_is_asked_then_it_is_the_queue() -> None:
    call = named("SendMessage", {"MessageBody": "hello"}, path="/000000000000/orders")

    assert call.parameters == {
        "QueueUrl": "http://localhost:9324/000000000000/orders",
        "MessageBody": "hello",
    }


def test_when_a_queue_url_is_given_too_then_it_wins_over_the_address() -> None:
    call = named("DeleteQueue", {"QueueUrl": "http://x/1/second"}, path="/000000000000/first")

    assert call.parameters == {"QueueUrl": "http://x/1/second"}


@pytest.mark.parametrize("action", ["CreateQueue", "ListQueues"])
def test_when_a_queues_address_is_asked_for_what_is_not_about_a_queue_then_it_refuses(
    action: str,
) -> None:
    with pytest.raises(SqsError) as refused:
        named(action, {"QueueName": "q"}, path="/000000000000/first")

    assert refused.value.query_code == "InvalidAction"
    assert refused.value.query_message == f"The action {action} is not valid for this endpoint."


def test_when_fields_come_in_url_and_body_then_both_count_and_the_body_wins() -> None:
    call = parse("/", "Action=SendMessage&MessageBody=a", HOST, b"MessageBody=b&QueueUrl=q")

    assert call.parameters == {"QueueUrl": "q", "MessageBody": "b"}


def test_when_a_url_is_presigned_then_its_scope_says_who_and_where() -> None:
    credential = "123456789012%2F20250615%2Feu-west-1%2Fsqs%2Faws4_request"

    call = parse("/", f"Action=ListQueues&X-Amz-Credential={credential}&X-Amz-Date=0", HOST, b"")

    assert (call.account, call.region) == ("123456789012", "eu-west-1")
    assert call.parameters == {}


@pytest.mark.parametrize(
    "fields",
    [
        {"Attribute.1.Name": "DelaySeconds", "Attribute.1.Value": "5"},
        {"Attribute.Name": "DelaySeconds", "Attribute.Value": "5"},
        {"Attribute.member.1.Name": "DelaySeconds", "Attribute.member.1.Value": "5"},
        {"Attributes.7.Name": "DelaySeconds", "Attributes.7.Value": "5"},
    ],
)
def test_when_a_map_is_spelled_in_any_known_way_then_it_is_read(fields: dict[str, str]) -> None:
    call = named("SetQueueAttributes", {"QueueUrl": "q", **fields})

    assert call.parameters["Attributes"] == {"DelaySeconds": "5"}


@pytest.mark.parametrize("name", ["AttributeName", "AttributeName.1", "AttributeName.member.1"])
def test_when_a_list_is_spelled_in_any_known_way_then_it_is_read(name: str) -> None:
    call = named("GetQueueAttributes", {"QueueUrl": "q", name: "All"})

    assert call.parameters["AttributeNames"] == ["All"]


@pytest.mark.parametrize(
    "fields",
    [
        {"DelaySeconds": "soon"},
        {"DelaySeconds": "٣"},
        {"DelaySeconds": "9" * 5000},
        {"DelaySeconds.1": "1"},
        {"MessageBody.1": "x"},
        {"MessageAttribute.1.Value.StringValue": "nameless"},
        {"MessageAttribute.1.Name": "a", "MessageAttribute.1.Value": "flat"},
        {"MessageAttribute.1.Name": "a", "MessageAttribute.1.Value.BinaryValue": "?"},
    ],
)
def test_when_a_field_is_not_of_its_type_then_the_request_is_malformed(
    fields: dict[str, str],
) -> None:
    with pytest.raises(SqsError) as refused:
        named("SendMessage", fields)

    assert refused.value.query_code == "MalformedInput"


@pytest.mark.parametrize("body", [b"\xff", b"Action=%ff", b"&a=1" * 20_000])
def test_when_the_form_is_none_then_the_request_is_malformed(body: bytes) -> None:
    with pytest.raises(SqsError) as refused:
        parse("/", "", HOST, body)

    assert refused.value.query_code == "MalformedInput"


def test_when_there_is_no_action_then_the_answer_is_awss_bare_element() -> None:
    with pytest.raises(SqsError) as refused:
        parse("/000000000000/orders", "", HOST, b"")

    answer = render_error(refused.value, {})
    assert (answer.status, answer.body) == (404, b"<UnknownOperationException/>")
    assert refused.value.args == missing_action().args


def test_when_a_result_is_empty_then_its_element_is() -> None:
    answer = render(form(Action="ReceiveMessage", QueueUrl="q"), {"Messages": []}, "id-1")

    assert answer.body.decode() == (
        '<?xml version="1.0" encoding="UTF-8"?>'
        '<ReceiveMessageResponse xmlns="http://queue.amazonaws.com/doc/2012-11-05/">'
        "<ReceiveMessageResult/>"
        "<ResponseMetadata><RequestId>id-1</RequestId></ResponseMetadata>"
        "</ReceiveMessageResponse>"
    )


def test_when_an_operation_gives_nothing_then_there_is_no_result_element() -> None:
    answer = render(form(Action="DeleteQueue", QueueUrl="q"), {}, "id-1")

    assert b"Result" not in answer.body
    assert b"<RequestId>id-1</RequestId>" in answer.body


def test_when_a_message_is_rendered_then_each_map_and_list_is_flat() -> None:
    message = {
        "MessageId": "m",
        "Body": "a\r\n<b>&",
        "Attributes": {"SentTimestamp": "1"},
        "MessageAttributes": {"n": {"DataType": "Binary", "BinaryValue": b"\x00"}},
    }

    answer = render(form(Action="ReceiveMessage", QueueUrl="q"), {"Messages": [message] * 2})

    one = (
        "<Message><MessageId>m</MessageId><Body>a&#13;\n&lt;b&gt;&amp;</Body>"
        "<Attribute><Name>SentTimestamp</Name><Value>1</Value></Attribute>"
        "<MessageAttribute><Name>n</Name><Value><DataType>Binary</DataType>"
        "<BinaryValue>AA==</BinaryValue></Value></MessageAttribute></Message>"
    )
    assert f"<ReceiveMessageResult>{one * 2}</ReceiveMessageResult>" in answer.body.decode()


def test_when_a_request_cannot_be_parsed_then_its_headers_say_which_protocol_it_meant() -> None:
    assert speaks_json({"x-amz-target": "AmazonSQS.Dance"})
    assert speaks_json({"content-type": "application/x-amz-json-1.0"})
    assert not speaks_json({"content-type": "application/x-www-form-urlencoded"})


def test_when_json_is_asked_for_then_a_map_is_a_list_of_names_and_values() -> None:
    call = parse("/1/q", "Action=GetQueueAttributes", {"accept": "application/json"}, b"")

    answer = render(call, {"Attributes": {"DelaySeconds": "5"}}, "id-1")

    assert msgspec.json.decode(answer.body) == {
        "GetQueueAttributesResponse": {
            "GetQueueAttributesResult": {"Attributes": [{"Name": "DelaySeconds", "Value": "5"}]},
            "ResponseMetadata": {"RequestId": "id-1"},
        }
    }


def test_when_json_is_asked_for_then_messages_keep_their_structure() -> None:
    attributes = {"a": {"DataType": "Binary", "BinaryValue": b"\x00"}}

    result = _in_json(
        "ReceiveMessage", {"Messages": [{"Body": "b", "MessageAttributes": attributes}]}
    )

    [message] = result["messages"]
    [attribute] = message["MessageAttributes"]
    assert (message["Body"], attribute["Name"]) == ("b", "a")
    assert attribute["Value"]["DataType"] == "Binary"
    assert attribute["Value"]["BinaryValue"] == "AA=="


@pytest.mark.parametrize(
    ("operation", "result", "shown"),
    [
        ("ReceiveMessage", {}, {"messages": None}),
        ("ListQueues", {"QueueUrls": ["u"]}, {"queueUrls": ["u"], "NextToken": None}),
        (
            "SendMessage",
            {"MessageId": "m", "MD5OfMessageBody": "d"},
            {
                "MessageId": "m",
                "MD5OfMessageBody": "d",
                "MD5OfMessageAttributes": None,
                "MD5OfMessageSystemAttributes": None,
                "SequenceNumber": None,
            },
        ),
    ],
)
def test_when_json_is_asked_for_then_what_is_absent_is_null(
    operation: str, result: dict[str, Any], shown: dict[str, Any]
) -> None:
    assert _in_json(operation, result) == shown


def _in_json(operation: str, result: dict[str, Any]) -> dict[str, Any]:
    call = parse("/", f"Action={operation}", {"accept": "application/json"}, b"")
    answer = msgspec.json.decode(render(call, result, "id-1").body)
    found: dict[str, Any] = answer[f"{operation}Response"][f"{operation}Result"]
    return found


def test_when_json_is_asked_for_then_refusals_are_json_unless_there_is_no_action() -> None:
    headers = {"accept": "application/json"}

    refused = render_error(unknown_operation("ListQueues"), headers, "id-1")
    bare = render_error(missing_action(), headers)

    assert msgspec.json.decode(refused.body) == {
        "Error": {
            "Type": "Sender",
            "Code": "InvalidAction",
            "Message": "The action ListQueues is not valid for this endpoint.",
            "Detail": None,
        },
        "RequestId": "id-1",
    }
    assert bare.body == b"<UnknownOperationException/>"


def test_when_a_trace_id_comes_in_the_headers_then_the_call_has_it() -> None:
    call = parse("/1/q", "Action=SendMessage", {"x-amzn-trace-id": "Root=1-2-3"}, b"")

    assert call.trace_header == "Root=1-2-3"


@pytest.mark.parametrize("header", ["", "\udcff", "a\tb", "x" * 2000])
def test_when_a_trace_id_could_not_be_stored_as_text_then_there_is_none(header: str) -> None:
    call = parse("/1/q", "Action=SendMessage", {"x-amzn-trace-id": header}, b"")

    assert call.trace_header is None
