"""What SQS does to a message on its way: it refuses what breaks its rules, and carries the rest."""

import json
import re
from base64 import b64decode, b64encode
from typing import Any

from gateways.sqs.wire import encode, entry_request
from pump.message import Message

MAX_BYTES = 1_048_576
_XML_TEXT = re.compile("[\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]+")
_ID = re.compile(r"[A-Za-z0-9!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~]{1,128}")


def carry(message: Message, *, is_fifo: bool) -> dict[str, Any]:
    """The message as a receiver gets it."""
    entry = encode(message, is_fifo=is_fifo)
    return receipt_of(entry_request(entry, entry_id="0", delay_s=0), is_fifo=is_fifo)


def receipt_of(entry: dict[str, Any], *, is_fifo: bool) -> dict[str, Any]:
    """One of ReceiveMessage's messages for an entry of SendMessageBatch, if SQS takes it."""
    check(entry, is_fifo=is_fifo)
    names = ("MessageGroupId", "MessageDeduplicationId")
    raw = {
        "MessageId": "5fea7756-0ea4-451a-a703-a558b933e274",
        "ReceiptHandle": "handle",
        "Body": entry["MessageBody"],
        "MessageAttributes": entry["MessageAttributes"],
        "Attributes": {
            "ApproximateReceiveCount": "1",
            "SentTimestamp": "1794830400500",
            **{name: entry[name] for name in names if name in entry},
        },
    }
    # Both SDKs speak JSON with SQS, where octets are base64.
    carried: dict[str, Any] = json.loads(json.dumps(raw, default=lambda o: b64encode(o).decode()))
    for attribute in carried["MessageAttributes"].values():
        if "BinaryValue" in attribute:
            attribute["BinaryValue"] = b64decode(attribute["BinaryValue"])
    return carried


def check(entry: dict[str, Any], *, is_fifo: bool) -> None:
    """Assert what the documentation of SendMessageBatch demands of an entry."""
    assert _XML_TEXT.fullmatch(entry["MessageBody"])
    assert 1 <= len(entry["MessageAttributes"]) <= 10
    for attribute in entry["MessageAttributes"].values():
        kind = attribute["DataType"].split(".")[0]
        assert kind in {"String", "Number", "Binary"}
        if kind == "Binary":
            assert isinstance(attribute["BinaryValue"], bytes)
            assert attribute["BinaryValue"]
        else:
            assert _XML_TEXT.fullmatch(attribute["StringValue"])
        assert kind != "Number" or float(attribute["StringValue"]) is not None
    assert not is_fifo or {"MessageGroupId", "MessageDeduplicationId"} <= entry.keys()
    assert is_fifo or "MessageDeduplicationId" not in entry
    for name in ("MessageGroupId", "MessageDeduplicationId"):
        assert name not in entry or _ID.fullmatch(entry[name])


def size_of(entry: dict[str, Any]) -> int:
    """Bytes as SQS counts them: the body, and each attribute's name, type and value."""
    attributes = entry["MessageAttributes"].items()
    return len(entry["MessageBody"].encode()) + sum(
        len((name + attribute["DataType"] + attribute.get("StringValue", "")).encode())
        + len(attribute.get("BinaryValue", b""))
        for name, attribute in attributes
    )
