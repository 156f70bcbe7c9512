"""What SQS, SNS and Lambda hand over when all is well, for the fuzzers to spoil."""

from __future__ import annotations

import json
from typing import Any

from msgspec.structs import replace

from gateways.sqs.topics import permitting
from gateways.sqs.wire import ATTRIBUTE
from pump.message import Message

from ..gateways.sqs.carrier import carry

WHOLE = Message(
    body=b'{"order_id": "o-1"}',
    id="m-1",
    type="PlaceOrder",
    correlation_id="c-1",
    reply_to="answers",
    group="g",
    deduplication_id="d",
    created_at_s=1.5,
    headers={
        "traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        "é": "\ud800",
    },
)
OURS = carry(WHOLE, is_fifo=True)
BINARY = carry(replace(WHOLE, body=b"\x00\xff"), is_fifo=False)
COMPRESSED = {
    **OURS,
    "Body": "eJyrVspXslJKVKoFAA8+Az8=",
    "MessageAttributes": {ATTRIBUTE: {"StringValue": '{"v":1,"id":"m","e":"zlib"}'}},
}
TOPIC = "arn:aws:sns:eu-west-1:123456789012:orders"
NOTIFICATION = {
    "Type": "Notification",
    "MessageId": "n-1",
    "TopicArn": TOPIC,
    "Subject": "s",
    "Message": '{"order_id": "o-1"}',
    "MessageAttributes": {
        "messageType": {"Type": "String", "Value": "PlaceOrder"},
        ATTRIBUTE: {"Type": "String", "Value": OURS["MessageAttributes"][ATTRIBUTE]["StringValue"]},
    },
}
NOTIFIED = {
    "MessageId": "m-2",
    "ReceiptHandle": "r-2",
    "Body": json.dumps(NOTIFICATION),
    "Attributes": {"SentTimestamp": "1750000000000", "ApproximateReceiveCount": "3"},
}
PUBLISHED = {
    **{name: text for name, text in NOTIFICATION.items() if name != "MessageAttributes"},
    "MessageAttributes": {"messageType": {"Type": "String", "Value": "PlaceOrder"}},
}
"""By somebody who is not us."""
BRIGHTER = {
    "MessageId": "m-3",
    "ReceiptHandle": "r-3",
    "Body": "{}",
    "Attributes": {"AWSTraceHeader": "Root=1-5759e988", "MessageGroupId": "g"},
    "MessageAttributes": {
        "messageType": {"DataType": "String", "StringValue": "MT_EVENT"},
        "id": {"DataType": "String", "StringValue": "b-1"},
        "bag": {"DataType": "String", "StringValue": '{"originalTopic": "t", "n": [1]}'},
        "cloudeventheaders": {"DataType": "String", "StringValue": '{"type": "PlaceOrder"}'},
        "seal": {"DataType": "Binary", "BinaryValue": b"\x00\xff"},
    },
}
RECEIVED = [OURS, BINARY, COMPRESSED, NOTIFIED, BRIGHTER]
RECORD = {
    "messageId": "m-1",
    "receiptHandle": "r-1",
    "body": OURS["Body"],
    "attributes": {
        "ApproximateReceiveCount": "1",
        "SentTimestamp": "1750000000000",
        "MessageGroupId": "g",
        "MessageDeduplicationId": "d",
        "AWSTraceHeader": "Root=1-5759e988",
    },
    "messageAttributes": {
        ATTRIBUTE: {
            "stringValue": OURS["MessageAttributes"][ATTRIBUTE]["StringValue"],
            "stringListValues": [],
            "binaryListValues": [],
            "dataType": "String",
        },
        "seal": {"binaryValue": "AP8=", "dataType": "Binary"},
    },
    "md5OfBody": "e4e68fb7bd0e697a0ae8f1bb342846b3",
    "eventSource": "aws:sqs",
    "eventSourceARN": "arn:aws:sqs:eu-west-1:123456789012:orders",
    "awsRegion": "eu-west-1",
}
STRANGER = {**RECORD, "messageId": "m-2", "body": NOTIFIED["Body"], "messageAttributes": {}}
EVENT = {"Records": [RECORD, STRANGER]}
POLICY = permitting(None, TOPIC, "arn:aws:sqs:eu-west-1:123456789012:q") or ""
CLAIMED = json.dumps({"bucket": "bodies", "key": "claims/q/m-1", "size": 3, "sha256": "0" * 64})
ADDRESSES = [
    *("orders", "orders.fifo", "arn:aws:sqs:eu-west-1:123456789012:orders"),
    *("https://sqs.eu-west-1.amazonaws.com/123456789012/orders.fifo", "http://[::1]:4566/000/q"),
    "http://localhost:4566/queue/eu-west-1/000000000000/orders",
]
TOPICS = ["orders", "orders.fifo", TOPIC]


def as_sqs_may(raw: Any) -> bool:
    """Whether an SDK could have made it: its parsers fix the types, and nothing about the texts."""
    match raw:
        case {"Body": str(), "ReceiptHandle": str(), "MessageId": str(id_)} if id_:
            system, given = raw.get("Attributes", {}), raw.get("MessageAttributes", {})
        case _:
            return False
    return (
        isinstance(system, dict)
        and all(isinstance(text, str) for text in system.values())
        and isinstance(given, dict)
        and all(isinstance(each, dict) for each in given.values())
        and all(isinstance(each.get("StringValue", ""), str) for each in given.values())
    )
