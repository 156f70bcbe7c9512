"""The event: what Lambda gives a function for messages of a queue, field by field. Pure."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import attrs

from ..model import Attribute, QueueAddress, Received
from ..operations.digests import attributes_digest, body_digest

MAX_PAYLOAD_BYTES: Final = 6_000_000
"""The most that Lambda hands to a function at once."""

Record = dict[str, Any]


@attrs.frozen(eq=False)
class Item:
    """A message with the record a function sees of it, and what that weighs as JSON."""

    message: Received
    record: Record = attrs.field(repr=False)
    size: int

    @property
    def id(self) -> str:
        """The message's."""
        return self.message.id


def make_item(message: Received, address: QueueAddress, *, has_window: bool) -> Item:
    """A received message, ready to be put into an event."""
    record = make_record(message, address, has_window=has_window)
    return Item(message, record, len(json.dumps(record, ensure_ascii=False).encode()))


def make_record(message: Received, address: QueueAddress, *, has_window: bool) -> Record:
    """One of an event's `Records`.

    Without message attributes there is no `md5OfMessageAttributes`; with a batching window,
    AWS gives it as null then.
    """
    record: Record = {
        "messageId": message.id,
        "receiptHandle": message.receipt,
        "body": message.body,
        "attributes": _system_attributes(message),
        "messageAttributes": {
            name: _message_attribute(each) for name, each in message.attributes.items()
        },
        "md5OfBody": body_digest(message.body.encode()),
    }
    if message.attributes:
        record["md5OfMessageAttributes"] = attributes_digest(message.attributes)
    elif has_window:
        record["md5OfMessageAttributes"] = None
    return record | {
        "eventSource": "aws:sqs",
        "eventSourceARN": address.arn,
        "awsRegion": address.region,
    }


def make_event(items: Iterable[Item]) -> dict[str, Any]:
    """What the function is called with: its own, to change as it likes."""
    event: dict[str, Any] = json.loads(json.dumps({"Records": [item.record for item in items]}))
    return event


def split_by_size(items: Sequence[Item], limit: int = MAX_PAYLOAD_BYTES) -> Iterator[list[Item]]:
    """The items in order, in as few parts as fit into an invocation each; one item always does."""
    part: list[Item] = []
    size = 0
    for item in items:
        if part and size + item.size > limit:
            yield part
            part, size = [], 0
        part.append(item)
        size += item.size
    if part:
        yield part


def _system_attributes(message: Received) -> dict[str, str]:
    found = {
        "ApproximateReceiveCount": str(message.receive_count),
        "SentTimestamp": _milliseconds(message.sent_at_s),
        "SequenceNumber": message.sequence_number,
        "MessageGroupId": message.group,
        "SenderId": message.sender,
        "MessageDeduplicationId": message.deduplication_id,
        "ApproximateFirstReceiveTimestamp": _milliseconds(message.first_received_at_s),
        "AWSTraceHeader": message.trace_header,
        "DeadLetterQueueSourceArn": message.dead_letter_source,
    }
    return {name: value for name, value in found.items() if value is not None}


def _message_attribute(attribute: Attribute) -> dict[str, Any]:
    value = attribute.value
    given = (
        {"stringValue": value}
        if isinstance(value, str)
        else {"binaryValue": b64encode(value).decode()}
    )
    return {
        **given,
        "stringListValues": [],
        "binaryListValues": [],
        "dataType": attribute.data_type,
    }


def _milliseconds(time_s: float) -> str:
    return str(round(time_s * 1_000))
