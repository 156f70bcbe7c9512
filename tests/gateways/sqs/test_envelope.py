"""Messages of other producers, and those that come through SNS, are understood (T11)."""

import json
from typing import Any

import pytest
from hypothesis import given

from gateways.sqs.wire import decode, encode
from pump.cloudevents import from_event, is_event
from pump.message import JSON, Message
from tests.brokers.aws_account import AwsAccount

from .messages import messages

SQS_ID = "5fea7756-0ea4-451a-a703-a558b933e274"
SNS_ID = "95df01b4-ee98-5cb9-9903-4c221d41eb5e"
TOPIC = "arn:aws:sns:eu-west-1:123456789012:orders"


def text(value: str, kind: str = "String") -> dict[str, Any]:
    return {"DataType": kind, "StringValue": value}


def raw(
    body: str = '{"order_id": "o-1"}',
    attributes: dict[str, dict[str, Any]] | None = None,
    **system: str,
) -> dict[str, Any]:
    received: dict[str, Any] = {"MessageId": SQS_ID, "ReceiptHandle": "r", "Body": body}
    if attributes is not None:
        received["MessageAttributes"] = attributes
    if system:
        received["Attributes"] = system
    return received


def notification(message: str, attributes: dict[str, Any] | None = None, **more: Any) -> str:
    envelope: dict[str, Any] = {
        "Type": "Notification",
        "MessageId": SNS_ID,
        "TopicArn": TOPIC,
        "Message": message,
        "Timestamp": "2026-11-16T12:00:00.000Z",
        "SignatureVersion": "1",
        "Signature": "c2lnbmVk",
        "SigningCertURL": "https://sns.eu-west-1.amazonaws.com/cert.pem",
        "UnsubscribeURL": "https://sns.eu-west-1.amazonaws.com/?Action=Unsubscribe",
    }
    if attributes is not None:
        envelope["MessageAttributes"] = attributes
    return json.dumps(envelope | more, indent=2)


def test_when_a_bare_message_arrives_then_sqs_says_what_the_sender_did_not() -> None:
    message = decode(
        raw(
            SentTimestamp="1794830400500",
            MessageGroupId="ann",
            MessageDeduplicationId="d-1",
            AWSTraceHeader="Root=1-5759e988-bd862e3fe1be46a994272793",
        )
    )

    assert message == Message(
        body=b'{"order_id": "o-1"}',
        id=SQS_ID,
        group="ann",
        deduplication_id="d-1",
        created_at_s=1794830400.5,
        headers={"X-Amzn-Trace-Id": "Root=1-5759e988-bd862e3fe1be46a994272793"},
    )


def test_when_a_message_is_delivered_again_then_its_id_and_reading_are_the_same() -> None:
    attributes = {"type": text("A"), "messageType": text("B"), "Type": text("C")}

    first = decode(raw(attributes=attributes))
    second = decode(raw(attributes=dict(reversed(attributes.items()))))

    assert first == second
    assert first.id == SQS_ID
    assert sorted([first.type, *first.headers.values()]) == ["A", "B", "C"]


@pytest.mark.parametrize(
    ("names", "field"),
    [
        (["type", "Type", "messageType", "message-type", "message_type", "MessageType"], "type"),
        (["contentType", "content-type", "Content-Type", "content_type"], "content_type"),
        (["correlationId", "correlation-id", "correlation_id", "CorrelationID"], "correlation_id"),
        (["replyTo", "reply-to", "reply_to", "ReplyTo"], "reply_to"),
    ],
)
def test_when_an_attribute_has_a_usual_name_then_it_is_the_messages_field(
    names: list[str], field: str
) -> None:
    for name in names:
        message = decode(raw(attributes={name: text("value")}))

        assert getattr(message, field) == "value", name
        assert message.headers == {}


def test_when_attributes_have_no_field_then_they_are_headers_under_their_own_names() -> None:
    message = decode(
        raw(
            attributes={
                "Tenant": text("ann"),
                "traceparent": text("00-ab-cd-01"),
                "retries": text("3", "Number.int"),
                "key": {"DataType": "Binary", "BinaryValue": b"\x00\xff"},
            }
        )
    )

    assert message.headers == {
        "Tenant": "ann",
        "traceparent": "00-ab-cd-01",
        "retries": "3",
        "key": "AP8=",
    }
    assert (message.type, message.content_type) == ("", JSON)


def test_when_a_cloud_event_in_binary_mode_arrives_then_the_core_can_read_it() -> None:
    event = decode(
        raw(
            attributes={
                "ce-specversion": text("1.0"),
                "ce-id": text("e-1"),
                "ce-source": text("/shop"),
                "ce-type": text("PlaceOrder"),
                "content-type": text("application/json"),
            }
        )
    )

    assert is_event(event)
    message = from_event(event)
    assert (message.id, message.type) == ("e-1", "PlaceOrder")
    assert message.body == b'{"order_id": "o-1"}'


def brighter(**changes: str) -> dict[str, dict[str, Any]]:
    sent = {
        "id": "b-1",
        "topic": "orders",
        "message-type": "MT_COMMAND",
        "content-type": "application/json; charset=utf-8",
        "correlation-id": "c-1",
        "reply-to": "replies",
        "timestamp": "2026-11-16T12:00:00Z",
        "cloudeventheaders": json.dumps({"id": "b-1", "type": "PlaceOrder", "specversion": "1.0"}),
        "bag": json.dumps({"originalTopic": "orders", "handled-count": 2, "deep": {"a": [1]}}),
    }
    return {name: text(value) for name, value in (sent | changes).items()}


def test_when_brighter_sent_it_then_its_own_id_and_type_are_the_messages() -> None:
    message = decode(raw(attributes=brighter()))

    assert (message.id, message.type) == ("b-1", "PlaceOrder")
    assert (message.correlation_id, message.reply_to) == ("c-1", "replies")
    assert message.content_type == "application/json; charset=utf-8"


def test_when_brighter_rejected_it_then_its_bag_says_why() -> None:
    """R28: names are Brighter's, in both directions."""
    message = decode(raw(attributes=brighter()))

    assert message.headers["originalTopic"] == "orders"
    assert message.headers["handled-count"] == "2"
    assert message.headers["deep"] == '{"a":[1]}'
    assert message.headers["message-type"] == "MT_COMMAND"


@pytest.mark.parametrize("broken", ["", "{", "[]", "null", '{"type": 1}', '{"type": ""}'])
def test_when_brighters_json_is_broken_then_the_rest_is_still_read(broken: str) -> None:
    message = decode(raw(attributes=brighter(bag=broken, cloudeventheaders=broken)))

    assert (message.id, message.type) == ("b-1", "")
    assert message.headers["bag"] == broken


def test_when_a_stranger_has_an_id_attribute_then_it_does_not_replace_the_messages_id() -> None:
    """It may be an order's, and two messages of one order are not one message."""
    message = decode(raw(attributes={"id": text("order-1")}))

    assert (message.id, message.headers) == (SQS_ID, {"id": "order-1"})


def test_when_a_body_is_base64_by_its_senders_custom_then_it_stays_as_it_is() -> None:
    """Celery writes bodies so; only its own reader knows."""
    assert decode(raw("eyJib2R5IjogIlcxMCJ9")).body == b"eyJib2R5IjogIlcxMCJ9"


@pytest.mark.parametrize("sent", ["soon", "", "1e3", "9" * 400, "9" * 5000])
def test_when_the_timestamp_is_no_number_then_the_time_is_unknown(sent: str) -> None:
    assert decode(raw(SentTimestamp=sent)).created_at_s is None


def test_when_sns_wrapped_a_message_then_the_message_is_what_was_published() -> None:
    body = notification(
        '{"order_id": "o-1"}',
        {
            "messageType": {"Type": "String", "Value": "PlaceOrder"},
            "amount": {"Type": "Number", "Value": "3"},
            "key": {"Type": "Binary", "Value": "AP8="},
        },
        Subject="an order",
    )

    message = decode(raw(body, SentTimestamp="1794830400500"))

    assert message == Message(
        body=b'{"order_id": "o-1"}',
        id=SNS_ID,
        type="PlaceOrder",
        created_at_s=1794830400.5,
        headers={
            "snsTopicArn": TOPIC,
            "snsMessageId": SNS_ID,
            "snsSubject": "an order",
            "amount": "3",
            "key": "AP8=",
        },
    )


@given(messages)
def test_when_our_message_comes_through_sns_then_it_is_as_it_was_sent(message: Message) -> None:
    entry = encode(message, is_fifo=False)
    attributes = {"pump": {"Type": "String", "Value": entry.attribute}}

    assert decode(raw(notification(entry.body, attributes))) == message


def test_when_sns_delivers_raw_then_nothing_is_unwrapped() -> None:
    entry = encode(Message(body=b"{}", id="m-1"), is_fifo=False)

    assert decode(raw(entry.body, {"pump": text(entry.attribute)})).id == "m-1"


def test_when_our_own_body_looks_like_a_notification_then_it_is_left_alone() -> None:
    body = notification("inner")
    entry = encode(Message(body=body.encode(), id="m-1"), is_fifo=False)

    assert decode(raw(entry.body, {"pump": text(entry.attribute)})).body == body.encode()


def test_when_unwrapping_is_off_then_the_notification_is_the_body() -> None:
    body = notification("inner")

    message = decode(raw(body), unwrap_sns=False)

    assert (message.id, message.body) == (SQS_ID, body.encode())


@pytest.mark.parametrize(
    "changes",
    [
        {"Type": "SubscriptionConfirmation"},
        {"Message": {"not": "text"}},
        {"TopicArn": None},
        {"MessageId": 7},
        {"MessageAttributes": {"a": "b"}},
    ],
)
def test_when_a_body_only_resembles_a_notification_then_it_stays_whole(
    changes: dict[str, Any],
) -> None:
    body = notification("inner", **changes)

    message = decode(raw(body))

    assert (message.id, message.body) == (SQS_ID, body.encode())


def test_when_a_notification_was_cut_off_then_it_stays_as_it_is() -> None:
    body = notification("inner")[:-5]

    assert decode(raw(body)).body == body.encode()


def test_when_our_attribute_inside_sns_is_unreadable_then_it_is_a_strangers_message() -> None:
    body = notification("inner", {"pump": {"Type": "String", "Value": '{"v":2}'}})

    message = decode(raw(body))

    assert (message.body, message.headers["pump"]) == (b"inner", '{"v":2}')


@pytest.mark.broker
@pytest.mark.parametrize("is_raw", [False, True])
def test_when_sns_delivers_to_a_real_queue_then_ours_and_strangers_messages_are_understood(
    aws: AwsAccount, is_raw: bool
) -> None:
    # given a queue that is subscribed to a topic
    sqs, sns = aws.client("sqs"), aws.client("sns")
    url = sqs.create_queue(QueueName="orders")["QueueUrl"]
    topic = sns.create_topic(Name="orders")["TopicArn"]
    sns.subscribe(
        TopicArn=topic,
        Protocol="sqs",
        Endpoint=f"arn:aws:sqs:{aws.region}:{aws.account_id}:orders",
        Attributes={"RawMessageDelivery": str(is_raw).lower()},
    )

    # when one of our messages and one of somebody else's are published
    ours = Message(body=b"\x00", id="m-1", type="A", group="g", headers={"h": "\ud800ü"})
    entry = encode(ours, is_fifo=False)
    sns.publish(
        TopicArn=topic, Message=entry.body, MessageAttributes={"pump": text(entry.attribute)}
    )
    sns.publish(TopicArn=topic, Message="{}", MessageAttributes={"messageType": text("B")})

    # then both arrive as what they are
    received: dict[str, Message] = {}
    while len(received) < 2:
        reply = sqs.receive_message(
            QueueUrl=url,
            MaxNumberOfMessages=10,
            WaitTimeSeconds=5,
            MessageAttributeNames=["All"],
            MessageSystemAttributeNames=["All"],
        )
        received |= {message.type: message for message in map(decode, reply["Messages"])}
    assert received["A"] == ours
    assert received["B"].body == b"{}"
    assert ("snsTopicArn" in received["B"].headers) != is_raw


def test_when_a_notification_has_no_id_then_sqss_own_is_taken() -> None:
    """T11: everything goes by a message's id."""
    body = notification("{}").replace(SNS_ID, "")

    assert decode(raw(body)).id == SQS_ID
