"""AWS JSON 1.0, where clients are less tidy than botocore."""

from __future__ import annotations

import msgspec
import pytest

from gateways.sqs_server.errors import SqsError
from gateways.sqs_server.protocol import Call, parse, render


def json_call(body: bytes, operation: str = "SendMessage", **headers: str) -> Call:
    return parse("/", "", {"x-amz-target": f"AmazonSQS.{operation}", **headers}, body)


def test_when_a_binary_value_comes_then_it_is_bytes_and_text_that_looks_alike_stays_text() -> None:
    call = json_call(
        b'{"MessageBody": "AAEC", "MessageAttributes": {"a": {"DataType": "Binary",'
        b' "BinaryValue": "AAEC", "StringValue": "AAEC", "BinaryListValues": ["AA=="]}}}'
    )

    attribute = call.parameters["MessageAttributes"]["a"]
    assert call.parameters["MessageBody"] == "AAEC"
    assert attribute["BinaryValue"] == b"\x00\x01\x02"
    assert attribute["StringValue"] == "AAEC"
    assert attribute["BinaryListValues"] == [b"\x00"]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"{", ""),
        (b"\xff", ""),
        (b'{"QueueUrl": "\xff"}', ""),
        (b'{"QueueUrl": "\\ud800"}', ""),
        (b"[" * 100_000, ""),
        (b"[]", "Start of list found where not expected"),
        (b'{"X": ' + b"[" * 100_000, ""),
        (b'{"MessageBody": {}}', "Start of structure or map found where not expected."),
        (b'{"MessageBody": []}', "Start of list found where not expected"),
        (b'{"DelaySeconds": "5"}', "STRING_VALUE can not be converted to an Integer"),
        (b'{"DelaySeconds": true}', "TRUE_VALUE can not be converted to an Integer"),
        (b'{"DelaySeconds": {}}', "Start of structure or map found where not expected."),
        (b'{"DelaySeconds": []}', "Start of list found where not expected"),
        (b'{"MessageAttributes": []}', "Start of list found where not expected"),
        (
            b'{"MessageBody": 1, "DelaySeconds": "5"}',
            "STRING_VALUE can not be converted to an Integer",
        ),
        (b'{"MessageAttributes": {"a": {"BinaryValue": "?"}}}', ""),
    ],
)
def test_when_the_body_is_not_what_the_operation_takes_then_it_is_a_serialization_exception(
    body: bytes, message: str
) -> None:
    with pytest.raises(SqsError) as refused:
        json_call(body)

    assert refused.value.type == "com.amazon.coral.service#SerializationException"
    assert refused.value.message == message


def test_when_members_are_null_then_they_are_absent() -> None:
    call = json_call(
        b'{"QueueUrl": "q", "Entries": [{"Id": "1", "MessageBody": "x", "DelaySeconds": null}]}',
        "SendMessageBatch",
    )

    assert call.parameters == {"QueueUrl": "q", "Entries": [{"Id": "1", "MessageBody": "x"}]}


def test_when_text_is_sent_as_a_number_or_a_truth_value_then_it_is_taken_as_it_is_written() -> None:
    call = json_call(
        b'{"QueueUrl": "q", "MessageBody": 0, "Colour": [1], "MessageAttributes": '
        b'{"a": {"DataType": "String", "StringValue": true}, "b": {"StringValue": 1.5}}}'
    )

    assert call.parameters == {
        "QueueUrl": "q",
        "MessageBody": "0",
        "MessageAttributes": {
            "a": {"DataType": "String", "StringValue": "true"},
            "b": {"StringValue": "1.5"},
        },
    }


def test_when_a_member_is_unknown_then_it_is_left_out() -> None:
    assert json_call(b'{"QueueUrl": "q", "Colour": [1]}').parameters == {"QueueUrl": "q"}


def test_when_there_is_no_body_then_there_are_no_parameters() -> None:
    assert json_call(b"", "ListQueues").parameters == {}


@pytest.mark.parametrize("target", ["AmazonSQS.Dance", "Dance", "DynamoDB.ListQueues", ""])
def test_when_the_operation_is_unknown_then_it_is_refused(target: str) -> None:
    with pytest.raises(SqsError) as refused:
        parse("/", "", {"x-amz-target": target}, b"{}")

    assert refused.value.code == "UnknownOperationException"


def test_when_an_operation_gives_nothing_then_the_body_is_empty() -> None:
    answer = render(json_call(b"{}", "DeleteMessage"), {})

    assert answer.body == b""
    assert answer.headers["Content-Type"] == "application/x-amz-json-1.0"


def test_when_a_result_is_rendered_then_it_is_one_json_object_with_a_request_id() -> None:
    answer = render(json_call(b"{}", "ListQueues"), {"QueueUrls": ["u"]}, "id-1")

    assert msgspec.json.decode(answer.body) == {"QueueUrls": ["u"]}
    assert answer.headers["x-amzn-RequestId"] == "id-1"


AUTHORIZATION = (
    "AWS4-HMAC-SHA256 Credential={}/20250615/eu-west-1/sqs/aws4_request, "
    "SignedHeaders=host, Signature=0"
)


def test_when_the_access_key_is_an_account_then_the_call_is_that_accounts() -> None:
    call = json_call(b"{}", authorization=AUTHORIZATION.format("123456789012"))

    assert (call.account, call.region, call.sender) == (
        "123456789012",
        "eu-west-1",
        "123456789012",
    )


def test_when_the_access_key_is_a_key_then_the_call_is_the_default_accounts() -> None:
    call = json_call(b"{}", authorization=AUTHORIZATION.format("AKIAEXAMPLE"))

    assert (call.account, call.sender) == ("000000000000", "AKIAEXAMPLE")


@pytest.mark.parametrize(
    "header", ["", "Basic x", "AWS4-HMAC-SHA256 Credential=", "Credential=a/b"]
)
def test_when_there_is_no_scope_then_account_and_region_are_the_defaults(header: str) -> None:
    call = json_call(b"{}", authorization=header)

    assert (call.account, call.region) == ("000000000000", "us-east-1")


@pytest.mark.parametrize(
    ("host", "base_url"),
    [
        ("localhost:9324", "http://localhost:9324"),
        ("[::1]:9324", "http://[::1]:9324"),
        ("sqs.eu-west-1.localhost", "http://sqs.eu-west-1.localhost"),
        ("a b", "http://localhost"),
        ("x/<script>", "http://localhost"),
        ("", "http://localhost"),
    ],
)
def test_when_queue_urls_are_made_then_they_lead_back_to_a_host_that_is_one(
    host: str, base_url: str
) -> None:
    assert json_call(b"{}", host=host).base_url == base_url
