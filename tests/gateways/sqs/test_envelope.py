"""Messages of other producers, and those that come through SNS, are understood (T11)."""

import json
from typing import Any

import pytest
from hypothesis import given

from gateways.sqs.settling import deliveries_of
from gateways.sqs.wire import decode, encode, entry_request
from pump import headers
from pump.cloudevents import from_event, is_event
from pump.message import JSON, Message
from pump.rejection import enrich
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


def rejected(received: dict[str, Any], detail: str = "no stock") -> Message:
    """The copy that is routed of a message that came so."""
    [delivery] = deliveries_of(
        [received], queue="jobs", ends_at_s=1.0, is_fifo=False, unwrap_sns=True
    )
    return enrich(delivery, "DeliveryError", detail, rejected_at_s=1_794_830_400.0)


def sent(message: Message) -> dict[str, Any]:
    """The attributes that it is sent with, as another program sees them."""
    request = entry_request(encode(message, is_fifo=False), entry_id="0", delay_s=0)
    attributes: dict[str, Any] = request["MessageAttributes"]
    return attributes


TYPED: dict[str, Any] = {
    "messageType": text("PlaceOrder"),
    "tenant": text("north"),
    "amount": text("12.50", "Number.float"),
    "picture": {"DataType": "Binary.gif", "BinaryValue": b"GIF\x00\xff"},
}


def test_when_a_strangers_message_is_rejected_then_its_attributes_stay_typed_as_they_came() -> None:
    """R28: and the rejection is beside them, for readers that do not know us."""
    attributes = sent(rejected(raw(attributes=TYPED)))

    assert attributes.items() >= TYPED.items()
    assert {name: attributes[name]["StringValue"] for name in headers.REJECTION_ORDER[:3]} == {
        "rejectionReason": "DeliveryError",
        "rejectionMessage": "no stock",
        "originalTopic": "jobs",
    }
    assert len(attributes) == 10


def test_when_a_strangers_message_is_received_then_its_headers_are_its_attributes_alone() -> None:
    """What is kept for its copy is no business of the handler."""
    message = decode(raw(attributes=TYPED))

    assert message.headers.keys() == {"tenant", "amount", "picture"}


def test_when_our_own_message_is_rejected_then_strangers_read_why() -> None:
    """R28: the rejection's metadata are attributes of SQS, as well as packed."""
    ours = {"MessageAttributes": sent(Message(body=b"{}", type="Job", headers={"tenant": "n"}))}

    attributes = sent(rejected(raw() | ours))

    assert {name: each["StringValue"] for name, each in attributes.items() if name != "pump"} == {
        "originalTopic": "jobs",
        "rejectionReason": "DeliveryError",
        "rejectionMessage": "no stock",
        "rejectionTimestamp": "2026-11-16T12:00:00+00:00",
        "originalMessageType": "Job",
        "attempts": "1",
    }


@pytest.mark.parametrize("count", [8, 9, 10])
def test_when_there_is_room_for_few_then_the_strangers_own_attributes_go_first(count: int) -> None:
    """R28: ten attributes are all that SQS takes; what has no room is packed."""
    given = {f"a{n}": text(str(n), "Number") for n in range(count)}

    copy = rejected(raw(attributes=given))
    attributes = sent(copy)

    kept = {name: each for name, each in attributes.items() if name in given}
    assert len(attributes) == 10
    assert kept == dict(list(given.items())[:9])
    assert ("rejectionReason" in attributes) == (count == 8)
    assert decode(raw() | {"MessageAttributes": attributes}) == copy


def test_when_a_dead_letter_is_sent_back_then_the_strangers_attributes_are_as_they_were() -> None:
    """Also after a second rejection: what a redrive sends is what the dead letter said."""
    first = rejected(raw(attributes=TYPED))
    dead = raw() | {"MessageAttributes": sent(first)}

    again = sent(decode(dead))

    assert again.items() >= TYPED.items()
    assert sent(rejected(dead, "once more")).items() >= TYPED.items()


def test_when_a_message_is_as_large_as_sqs_takes_then_metadata_is_packed_only() -> None:
    """A copy must not be refused for what it says natively."""
    message = Message(body=b"x" * 1_047_900, id="m", headers={headers.REJECTION_REASON: "r" * 500})

    entry = encode(message, is_fifo=False)

    assert entry.size <= 1_048_576
    assert not entry.native


def test_when_the_detail_is_no_text_for_sqs_then_it_is_made_so_for_strangers_alone() -> None:
    copy = rejected(raw(attributes={"n": text("7", "Number")}), "bad \x00 \ud800 byte")

    attributes = sent(copy)

    assert attributes["rejectionMessage"]["StringValue"] == "bad \ufffd \ufffd byte"
    assert decode(raw() | {"MessageAttributes": attributes}) == copy


@pytest.mark.parametrize("name", ["messageType", "message-type", "MessageType"])
def test_when_brighters_message_is_rejected_then_its_kind_is_the_original_type(name: str) -> None:
    """R28: Brighter's own word where it names no type."""
    given = {name: text("MT_COMMAND"), "id": text("m-1"), "topic": text("orders")}

    copy = rejected(raw(attributes=given))

    assert copy.headers[headers.ORIGINAL_TYPE] == "MT_COMMAND"
    assert sent(copy)["originalMessageType"] == text("MT_COMMAND")
    assert sent(copy).items() >= given.items()


def test_when_sns_wrapped_a_message_then_its_copy_has_the_publishers_attributes() -> None:
    published = {
        "amount": {"Type": "Number", "Value": "3"},
        "b": {"Type": "Binary", "Value": "AAE="},
    }

    attributes = sent(rejected(raw(notification("{}", published))))

    assert attributes["amount"] == text("3", "Number")
    assert attributes["b"] == {"DataType": "Binary", "BinaryValue": b"\x00\x01"}
