"""What SendMessage takes, refuses and answers, as AWS does."""

from __future__ import annotations

from hashlib import md5
from typing import Any

import pytest

from .bench import FIFO, Bench

pytestmark = pytest.mark.broker

TRACE = "Root=1-5759e988-bd862e3fe1be46a994272793;Parent=53995c3f42cd8ad8;Sampled=1"


def text(value: str, kind: str = "String") -> dict[str, Any]:
    return {"DataType": kind, "StringValue": value}


@pytest.mark.parametrize(
    "body",
    [
        "message",
        " ",
        '"&quot;&quot;\r',
        '{\r\n"machineID" : "d357006e26ff47439e1ef894225d4307"}',
        "tab\tline\nend",
        "<xml attribute='a'>&amp;</xml>",
        "]]>",
        "grüße, 日本語, 𝄞",
        "\ud7ff\ue000\ufffd\U00010000\U0010ffff",
    ],
)
def test_when_a_body_is_sent_then_it_comes_back_character_by_character(
    bench: Bench, body: str
) -> None:
    url = bench.make()

    sent = bench.send(url, body)
    received = bench.receive_one(url)

    digest = md5(body.encode()).hexdigest()
    assert received["Body"] == body
    assert (sent["MD5OfMessageBody"], received["MD5OfBody"]) == (digest, digest)
    assert received["MessageId"] == sent["MessageId"]
    assert "SequenceNumber" not in sent
    assert "MD5OfMessageAttributes" not in sent


@pytest.mark.parametrize("body", ["\x00", "\x08", "\x13", "\ufffe", "\uffff", "a\x1fb"])
def test_when_a_body_has_characters_xml_has_not_then_it_is_refused(
    json_bench: Bench, body: str
) -> None:
    refusal = json_bench.refused("send_message", QueueUrl=json_bench.make(), MessageBody=body)

    assert (refusal.code, refusal.status) == ("InvalidMessageContents", 400)


def test_when_a_body_is_empty_then_the_parameter_is_missing(bench: Bench) -> None:
    refusal = bench.refused("send_message", QueueUrl=bench.make(), MessageBody="")

    assert refusal.code == "MissingParameter"
    assert refusal.message == "The request must contain the parameter MessageBody."


@pytest.mark.parametrize(
    ("attributes", "digest"),
    [
        (
            {
                "Help.Me": text("Me"),
                "Hello": text("There"),
                "General": text("Kenobi"),
            },
            "4c360f3fdafd970e05fae2f149d997f5",
        ),
        ({"Foo": text("Bar")}, "ae7155c6026991b6d54b11589678bf9c"),
        ({"k": text("x")}, "a45daa70926828a2f0a1db3418e6feb4"),
        (
            {
                "attr1": {
                    "DataType": "Binary",
                    "BinaryValue": b"traceparent\x1e00-774062d6c37081a5a0b9b5b88e30627c"
                    b"-2d2482211f6489da-01",
                }
            },
            "8cbe4db156db8a94db8b801b7addb984",
        ),
    ],
)
def test_when_attributes_are_sent_then_their_digest_is_that_of_aws(
    bench: Bench, attributes: dict[str, Any], digest: str
) -> None:
    url = bench.make()

    sent = bench.send(url, MessageAttributes=attributes)
    received = bench.receive_one(url, MessageAttributeNames=["All"])

    assert sent["MD5OfMessageAttributes"] == digest
    assert received["MD5OfMessageAttributes"] == digest
    assert received["MessageAttributes"] == attributes


@pytest.mark.parametrize(
    "attributes",
    [
        {"timestamp": text("1614717034367", "Number")},
        {"n": text("-1.5e-3", "Number.float")},
        {"custom": text("a", "String.my-own.type")},
        {"attr.1øßä": text("Valid")},
        {"a" * 256: text("b")},
        {"both": {"DataType": "Binary.gif", "BinaryValue": bytes(range(256))}},
        {f"n{number}": text("v") for number in range(10)},
    ],
)
def test_when_attributes_are_valid_then_they_come_back(
    bench: Bench, attributes: dict[str, Any]
) -> None:
    url = bench.make()

    bench.send(url, MessageAttributes=attributes)

    received = bench.receive_one(url, MessageAttributeNames=["All"])
    assert received["MessageAttributes"] == attributes


@pytest.mark.parametrize(
    "attributes",
    [
        {"attr1": text("Invalid-\x08,\x0b")},
        {"aWs.name": text("v")},
        {"AMAZON.name": text("v")},
        {".name": text("v")},
        {"name.": text("v")},
        {"na..me": text("v")},
        *({f"Invalid-{character}-attr": text("v")} for character in '!"§(? '),
        {"L" * 257: text("v")},
        {"name": text("v", "Invalid")},
        {"name": text("1", f"Number.{'L' * 256}")},
        {"name": text("one", "Number")},
        {"name": {"DataType": "String"}},
        {"name": {"DataType": "Binary", "StringValue": "text"}},
        {"name": {"StringValue": "text"}},
        {f"n{number}": text("v") for number in range(11)},
    ],
)
def test_when_an_attribute_is_invalid_then_nothing_is_sent(
    json_bench: Bench, attributes: dict[str, Any]
) -> None:
    url = json_bench.make()

    refusal = json_bench.refused(
        "send_message", QueueUrl=url, MessageBody="test", MessageAttributes=attributes
    )

    assert (refusal.code, refusal.status) == ("InvalidParameterValue", 400)
    assert json_bench.counts(url) == (0, 0, 0)


@pytest.mark.parametrize(
    "attribute",
    [{**text("v"), "StringListValues": ["v"]}, {"DataType": "B", "BinaryListValues": [b"v"]}],
)
def test_when_an_attribute_is_a_list_then_the_operation_does_not_support_it(
    bench: Bench, attribute: dict[str, Any]
) -> None:
    url = bench.make()
    sent = {"MessageBody": "test", "MessageAttributes": {"name": attribute}}

    refusals = {
        "SendMessage": bench.refused("send_message", QueueUrl=url, **sent),
        "SendMessageBatch": bench.refused(
            "send_message_batch", QueueUrl=url, Entries=[{"Id": "1", **sent}]
        ),
    }

    for operation, refusal in refusals.items():
        assert (refusal.code, refusal.status) == (
            "AWS.SimpleQueueService.UnsupportedOperation",
            400,
        )
        assert refusal.message == (
            f"Message attribute list values in {operation} operation are not supported."
        )
    assert bench.counts(url) == (0, 0, 0)


def test_when_an_attribute_is_empty_then_aws_says_so(bench: Bench) -> None:
    refusal = bench.refused(
        "send_message",
        QueueUrl=bench.make(),
        MessageBody="test",
        MessageAttributes={"ErrorDetails": text("")},
    )

    assert refusal.code == "InvalidParameterValue"
    assert refusal.message == (
        "Message (user) attribute 'ErrorDetails' must contain a non-empty value of type 'String'."
    )


def test_when_a_trace_header_is_sent_then_it_has_a_digest_of_its_own(bench: Bench) -> None:
    url = bench.make()
    attributes = {"timestamp": text("1493147359900", "Number")}

    plain = bench.send(url, "plain", MessageAttributes=attributes)
    traced = bench.send(
        url,
        "traced",
        MessageAttributes=attributes,
        MessageSystemAttributes={"AWSTraceHeader": text(TRACE)},
    )
    received = bench.receive(url, AttributeNames=["AWSTraceHeader"])

    assert plain["MD5OfMessageAttributes"] == traced["MD5OfMessageAttributes"]
    assert "MD5OfMessageSystemAttributes" not in plain
    assert traced["MD5OfMessageSystemAttributes"] == "5ae4d5d7636402d80f4eb6d213245a88"
    headers = {each["Body"]: each.get("Attributes", {}) for each in received}
    assert headers == {"plain": {}, "traced": {"AWSTraceHeader": TRACE}}


@pytest.mark.parametrize(
    "attributes",
    [{"Foo": text("bar")}, {"AWSTraceHeader": text("1", "Number")}],
)
def test_when_a_system_attribute_is_invalid_then_it_is_refused(
    bench: Bench, attributes: dict[str, Any]
) -> None:
    refusal = bench.refused(
        "send_message",
        QueueUrl=bench.make(),
        MessageBody="test",
        MessageSystemAttributes=attributes,
    )

    assert refusal.code == "InvalidParameterValue"


def test_when_a_message_is_too_long_then_its_attributes_count_too(bench: Bench) -> None:
    url = bench.make(MaximumMessageSize="1024")
    attribute = {"k": text("x")}
    size = len("k" + "String" + "x")

    bench.send(url, "a" * 1024)
    bench.send(url, "a" * (1024 - size), MessageAttributes=attribute)
    refusal = bench.refused(
        "send_message",
        QueueUrl=url,
        MessageBody="a" * (1024 - size + 1),
        MessageAttributes=attribute,
    )

    assert refusal.code == "InvalidParameterValue"
    assert refusal.message == (
        "One or more parameters are invalid. Reason: Message must be shorter than 1024 bytes."
    )


def test_when_a_message_is_longer_than_any_may_be_then_the_limit_is_named(bench: Bench) -> None:
    limit = 1024 * 1024
    url = bench.make()

    bench.send(url, "a" * limit)
    refusal = bench.refused("send_message", QueueUrl=url, MessageBody="a" * (limit + 1))

    assert refusal.code == "InvalidParameterValue"
    assert refusal.message.endswith(f"Message must be shorter than {limit} bytes.")


def test_when_a_message_is_delayed_then_it_comes_when_its_time_has(json_bench: Bench) -> None:
    url = json_bench.make()
    json_bench.send(url, "late", DelaySeconds=1)
    json_bench.send(url, "now")

    assert json_bench.counts(url) == (1, 0, 1)
    assert json_bench.bodies(url) == ["now"]
    assert json_bench.bodies(url, WaitTimeSeconds=5) == ["late"]


@pytest.mark.parametrize(("given", "seen"), [({}, []), ({"DelaySeconds": 0}, ["body"])])
def test_when_the_queue_delays_then_a_message_may_say_otherwise(
    bench: Bench, given: dict[str, Any], seen: list[str]
) -> None:
    url = bench.make(DelaySeconds="60")

    bench.send(url, **given)

    assert bench.bodies(url) == seen


@pytest.mark.parametrize("delay", [-1, 901])
def test_when_a_delay_is_out_of_its_range_then_it_is_refused(bench: Bench, delay: int) -> None:
    refusal = bench.refused(
        "send_message", QueueUrl=bench.make(), MessageBody="test", DelaySeconds=delay
    )

    assert refusal.code == "InvalidParameterValue"
    assert "DelaySeconds" in refusal.message


def test_when_a_fifo_message_is_to_be_delayed_then_only_the_queue_can(bench: Bench) -> None:
    refusal = bench.refused(
        "send_message",
        QueueUrl=bench.make(**FIFO, ContentBasedDeduplication="true"),
        MessageBody="message-1",
        MessageGroupId="1",
        DelaySeconds=2,
    )

    assert refusal.code == "InvalidParameterValue"
    assert refusal.message == (
        "Value 2 for parameter DelaySeconds is invalid. "
        "Reason: The request include parameter that is not valid for this queue type."
    )


def test_when_a_standard_queue_is_given_a_de_duplication_id_then_it_is_refused(
    bench: Bench,
) -> None:
    refusal = bench.refused(
        "send_message", QueueUrl=bench.make(), MessageBody="x", MessageDeduplicationId="d"
    )

    assert refusal.code == "InvalidParameterValue"
    assert "MessageDeduplicationId" in refusal.message


def test_when_a_standard_queue_is_given_a_group_then_it_is_kept(bench: Bench) -> None:
    """Fair queues: since July 2025 a standard queue's messages may have a group too."""
    url = bench.make()

    sent = bench.send(url, MessageGroupId="tenant-1")
    received = bench.receive_one(url, AttributeNames=["All"])

    assert "SequenceNumber" not in sent
    assert received["Attributes"]["MessageGroupId"] == "tenant-1"


def test_when_a_queue_is_named_instead_of_its_url_then_it_is_found(bench: Bench) -> None:
    url = bench.make()

    sent = bench.send(url.rpartition("/")[2], "Using name instead of URL")

    assert sent["MD5OfMessageBody"] == "86a83f96652a1bfad3891e7d523750cb"
    assert bench.bodies(url) == ["Using name instead of URL"]
