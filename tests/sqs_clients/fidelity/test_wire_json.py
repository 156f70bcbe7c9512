"""AWS JSON 1.0 as it is on the wire: targets, types, headers and errors."""

from __future__ import annotations

import base64

import pytest

from tests.brokers.aws_account import AwsAccount

from .bench import Bench
from .wire import JSON, Wire, path_of

pytestmark = pytest.mark.broker


@pytest.fixture
def wire(bench_account: AwsAccount) -> Wire:
    return Wire(bench_account)


@pytest.fixture
def url(json_bench: Bench) -> str:
    return json_bench.make()


def test_when_a_call_succeeds_then_type_and_request_id_are_in_the_headers(
    wire: Wire, url: str
) -> None:
    answer = wire.call("GetQueueUrl", {"QueueName": url.rpartition("/")[2]})

    assert (answer.status, answer.headers["content-type"]) == (200, JSON)
    assert answer.headers["x-amzn-requestid"]
    assert answer.json() == {"QueueUrl": url}


@pytest.mark.parametrize(
    ("operation", "parameters", "kind", "query_error"),
    [
        (
            "GetQueueUrl",
            {"QueueName": "no-such-queue"},
            "QueueDoesNotExist",
            "AWS.SimpleQueueService.NonExistentQueue",
        ),
        (
            "ReceiveMessage",
            {"MaxNumberOfMessages": 11},
            "InvalidParameterValueException",
            "InvalidParameterValue",
        ),
        (
            "GetQueueAttributes",
            {"AttributeNames": ["Foo"]},
            "InvalidAttributeName",
            "InvalidAttributeName",
        ),
        ("SendMessage", {}, "MissingRequiredParameterException", "MissingParameter"),
        (
            "DeleteMessage",
            {"ReceiptHandle": "garbage"},
            "ReceiptHandleIsInvalid",
            "ReceiptHandleIsInvalid",
        ),
        (
            "SendMessageBatch",
            {"Entries": [{"Id": ":", "MessageBody": "x"}]},
            "InvalidBatchEntryId",
            "AWS.SimpleQueueService.InvalidBatchEntryId",
        ),
        (
            "SendMessage",
            {"MessageBody": "\u0001"},
            "InvalidMessageContents",
            "InvalidMessageContents",
        ),
    ],
)
def test_when_a_call_is_refused_then_both_names_of_the_error_are_given(
    wire: Wire, url: str, operation: str, parameters: dict[str, object], kind: str, query_error: str
) -> None:
    answer = wire.call(operation, {"QueueUrl": url, **parameters})

    # The reference says 400 of all of these; AWS has always answered 404 to a receipt that is none.
    status = 404 if kind == "ReceiptHandleIsInvalid" else 400
    assert (answer.status, answer.headers["content-type"]) == (status, JSON)
    # The namespace is `com.amazonaws.sqs`, or that of AWS's framework where the API has no shape.
    assert answer.json()["__type"].rpartition("#")[2] == kind
    assert answer.json()["message"]
    assert answer.headers["x-amzn-query-error"] == f"{query_error};Sender"


def test_when_the_operation_is_unknown_then_it_is_said(wire: Wire) -> None:
    answer = wire.call("FooBar", {})

    assert answer.status in (400, 404)
    assert "UnknownOperationException" in answer.text


@pytest.mark.parametrize("body", ["{", "[]", '"text"', '{"QueueName": 5'])
def test_when_the_body_is_no_json_object_then_it_cannot_be_read(wire: Wire, body: str) -> None:
    answer = wire.call("GetQueueUrl", body)

    assert answer.status == 400
    assert "SerializationException" in answer.json()["__type"]


@pytest.mark.parametrize("value", ["ten", [1], {"a": 1}])
def test_when_a_parameter_is_of_the_wrong_type_then_it_is_refused(
    wire: Wire, url: str, value: object
) -> None:
    answer = wire.call("ReceiveMessage", {"QueueUrl": url, "MaxNumberOfMessages": value})

    assert answer.status == 400
    assert answer.json()["__type"]


def test_when_text_is_sent_as_a_number_then_it_is_taken(wire: Wire, json_bench: Bench) -> None:
    name = json_bench.name()

    made = wire.call("CreateQueue", {"QueueName": name, "Attributes": {"VisibilityTimeout": 0}})
    url = made.json()["QueueUrl"]
    wire.call("SendMessage", {"QueueUrl": url, "MessageBody": 2345})

    assert json_bench.attributes(url, "VisibilityTimeout") == {"VisibilityTimeout": "0"}
    assert json_bench.bodies(url) == ["2345"]


def test_when_bytes_are_sent_then_they_travel_in_base64(wire: Wire, url: str) -> None:
    value = base64.b64encode(b"\x00\xff").decode()
    attribute = {"DataType": "Binary", "BinaryValue": value}

    wire.call(
        "SendMessage", {"QueueUrl": url, "MessageBody": "b", "MessageAttributes": {"a": attribute}}
    )
    answer = wire.call("ReceiveMessage", {"QueueUrl": url, "MessageAttributeNames": ["All"]})

    assert answer.json()["Messages"][0]["MessageAttributes"] == {"a": attribute}


@pytest.mark.parametrize(
    ("operation", "parameters"),
    [
        ("PurgeQueue", {}),
        ("TagQueue", {"Tags": {"a": "b"}}),
        ("SetQueueAttributes", {"Attributes": {"DelaySeconds": "0"}}),
        ("DeleteQueue", {}),
    ],
)
def test_when_there_is_nothing_to_say_then_the_answer_is_empty(
    wire: Wire, url: str, operation: str, parameters: dict[str, object]
) -> None:
    answer = wire.call(operation, {"QueueUrl": url, **parameters})

    assert answer.status == 200
    assert answer.text in ("", "{}")


def test_when_json_is_sent_to_a_queues_url_then_it_is_understood(wire: Wire, url: str) -> None:
    sent = wire.call("SendMessage", {"QueueUrl": url, "MessageBody": "foobar"}, path_of(url))
    received = wire.call("ReceiveMessage", {"QueueUrl": url}, path_of(url))

    assert sent.status == 200
    assert [each["Body"] for each in received.json()["Messages"]] == ["foobar"]


def test_when_a_parameter_is_null_then_it_is_not_given(wire: Wire, url: str) -> None:
    answer = wire.call(
        "SendMessage", {"QueueUrl": url, "MessageBody": "x", "MessageAttributes": None}
    )

    assert answer.status == 200
