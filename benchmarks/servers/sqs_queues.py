"""Queues of the SQS stand-in, and what its requests and replies look like. Pure.

Standard queues in memory. A message is visible, or hidden until a moment: because it is delayed,
or because it was received and not yet deleted. Time is an argument. Not thread-safe.
"""

from __future__ import annotations

import base64
import hashlib
import heapq
import itertools
import json
import uuid
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs

Request = Mapping[str, Any]
Reply = Mapping[str, Any]

ACCOUNT = "000000000000"
_MAX_BATCH = 10
_RECEIPT_PADDING = "AQEB" * 72
"""Receipt handles are as long as those of AWS: clients read them and send them back."""
_NUMBERS = itertools.count(1)


@attrs.define(eq=False)
class StoredMessage:
    """One message, as it was sent."""

    message_id: str
    body: str
    body_md5: str
    attributes: Mapping[str, Any]
    system_attributes: Mapping[str, str]
    attributes_md5: str
    sent_ms: int
    receive_count: int = 0
    first_received_ms: int = 0
    receipt: str = ""
    """The latest receipt, while it is in flight."""
    hidden_until_s: float = 0.0


class Queue:
    """One standard queue: a message is in flight to one receiver at a time."""

    def __init__(self, name: str, url: str, attributes: Mapping[str, str], *, now_s: float) -> None:
        self.name = name
        self.url = url
        self.created_s = now_s
        self.attributes = dict(attributes)
        self.tags: dict[str, str] = {}
        self._visible: deque[StoredMessage] = deque()
        self._in_flight: dict[str, StoredMessage] = {}
        self._delayed_count = 0
        self._due: list[tuple[float, int, StoredMessage]] = []

    @property
    def visibility_s(self) -> float:
        """How long a received message stays hidden unless the receiver says otherwise."""
        return float(self.attributes.get("VisibilityTimeout", 30))

    @property
    def visible_count(self) -> int:
        """Messages that can be received."""
        return len(self._visible)

    @property
    def in_flight_count(self) -> int:
        """Messages that were received and not deleted."""
        return len(self._in_flight)

    @property
    def delayed_count(self) -> int:
        """Messages that could not be received yet."""
        return self._delayed_count

    @property
    def is_empty(self) -> bool:
        """Whether every message ever sent is gone."""
        return not (self._visible or self._in_flight or self._delayed_count)

    @property
    def next_due_s(self) -> float | None:
        """When the next hidden message may appear; it may have been deleted by then."""
        return self._due[0][0] if self._due else None

    def send(self, entry: Mapping[str, Any], *, now_s: float) -> StoredMessage:
        """Put one message in; `entry` is a SendMessage request or an entry of a batch."""
        attributes = entry.get("MessageAttributes") or {}
        stored = StoredMessage(
            message_id=str(uuid.UUID(int=next(_NUMBERS))),
            body=entry["MessageBody"],
            body_md5=hashlib.md5(entry["MessageBody"].encode()).hexdigest(),
            attributes=attributes,
            system_attributes=_system_attributes(entry),
            attributes_md5=md5_of_attributes(attributes),
            sent_ms=int(now_s * 1000),
        )
        delay_s = float(entry.get("DelaySeconds", self.attributes.get("DelaySeconds", 0)))
        if delay_s > 0:
            self._delayed_count += 1
            self._hide(stored, now_s + delay_s)
        else:
            self._visible.append(stored)
        return stored

    def receive(
        self, max_count: int, visibility_s: float, *, now_s: float
    ) -> Sequence[StoredMessage]:
        """Take up to `max_count` visible messages and hide them."""
        taken = [self._visible.popleft() for _ in range(min(max_count, len(self._visible)))]
        for stored in taken:
            stored.receive_count += 1
            stored.first_received_ms = stored.first_received_ms or int(now_s * 1000)
            stored.receipt = f"{_RECEIPT_PADDING}{next(_NUMBERS):012}"
            self._in_flight[stored.receipt] = stored
            self._hide(stored, now_s + visibility_s)
        return taken

    def delete(self, receipt: str) -> None:
        """Remove a message for good; without effect when it is visible again or gone already."""
        stored = self._in_flight.pop(receipt, None)
        if stored is not None:
            stored.receipt = ""

    def change_visibility(self, receipt: str, visibility_s: float, *, now_s: float) -> bool:
        """Hide a received message for another while. False when it is not in flight."""
        stored = self._in_flight.get(receipt)
        if stored is not None:
            self._hide(stored, now_s + visibility_s)
        return stored is not None

    def reveal_due(self, now_s: float) -> None:
        """Make visible what was hidden until now."""
        while self._due and self._due[0][0] <= now_s:
            due_s, _, stored = heapq.heappop(self._due)
            if stored.hidden_until_s != due_s:
                continue  # hidden again since, for another time
            if stored.receive_count == 0:
                self._delayed_count -= 1
            elif self._in_flight.pop(stored.receipt, None) is None:
                continue  # deleted
            self._visible.append(stored)

    def purge(self) -> None:
        """Remove every message."""
        self._visible.clear()
        self._in_flight.clear()
        self._due.clear()
        self._delayed_count = 0

    def _hide(self, stored: StoredMessage, until_s: float) -> None:
        stored.hidden_until_s = until_s
        heapq.heappush(self._due, (until_s, next(_NUMBERS), stored))


def is_receipt(text: str) -> bool:
    """Whether a queue could have given out this receipt."""
    return text.startswith(_RECEIPT_PADDING)


def md5_of_attributes(attributes: Mapping[str, Any]) -> str:
    """SQS's digest of message attributes: length-prefixed names, types and values, by name."""
    if not attributes:
        return ""
    digest = hashlib.md5()
    for name in sorted(attributes):
        value = attributes[name]
        for part in (name, value["DataType"]):
            _add_sized(digest, part.encode())
        text = value.get("StringValue")
        digest.update(b"\x01" if text is not None else b"\x02")
        _add_sized(digest, text.encode() if text is not None else _binary(value))
    return digest.hexdigest()


def _add_sized(digest: Any, part: bytes) -> None:
    digest.update(len(part).to_bytes(4, "big"))
    digest.update(part)


def _binary(value: Mapping[str, Any]) -> bytes:
    return base64.b64decode(value["BinaryValue"])


def _system_attributes(entry: Mapping[str, Any]) -> Mapping[str, str]:
    given = entry.get("MessageSystemAttributes") or {}
    found = {name: value["StringValue"] for name, value in given.items()}
    if "MessageGroupId" in entry:
        found["MessageGroupId"] = entry["MessageGroupId"]
    return found


# Requests and replies.


@attrs.frozen
class SqsError(Exception):
    """The service says no, with SQS's code for it (and the code of its older protocol)."""

    code: str
    text: str
    query_code: str = ""


def entries(request: Request) -> Sequence[Request]:
    given: Sequence[Request] = request["Entries"]
    if len(given) > _MAX_BATCH:
        raise SqsError("TooManyEntriesInBatchRequest", "Maximum number of entries is 10.")
    return given


def each(request: Request, perform: Callable[[Request], None]) -> Reply:
    successful, failed = [], []
    for entry in entries(request):
        try:
            perform(entry)
            successful.append({"Id": entry["Id"]})
        except SqsError as error:
            failed.append(
                {"Id": entry["Id"], "Code": error.code, "Message": error.text, "SenderFault": True}
            )
    return {"Successful": successful, "Failed": failed}


def sent(stored: StoredMessage) -> dict[str, Any]:
    reply = {"MessageId": stored.message_id, "MD5OfMessageBody": stored.body_md5}
    if stored.attributes:
        reply["MD5OfMessageAttributes"] = stored.attributes_md5
    return reply


def received(stored: StoredMessage, request: Request) -> dict[str, Any]:
    reply: dict[str, Any] = {
        "MessageId": stored.message_id,
        "ReceiptHandle": stored.receipt,
        "MD5OfBody": stored.body_md5,
        "Body": stored.body,
    }
    wanted = request.get("MessageSystemAttributeNames") or request.get("AttributeNames")
    if wanted:
        reply["Attributes"] = _system_values(stored, wanted)
    names = request.get("MessageAttributeNames")
    if names and stored.attributes:
        reply |= _attribute_values(stored, names)
    return reply


def _system_values(stored: StoredMessage, wanted: Sequence[str]) -> dict[str, str]:
    values = {
        "ApproximateReceiveCount": str(stored.receive_count),
        "SentTimestamp": str(stored.sent_ms),
        "SenderId": ACCOUNT,
        "ApproximateFirstReceiveTimestamp": str(stored.first_received_ms),
        **stored.system_attributes,
    }
    if "All" in wanted:
        return values
    return {name: value for name, value in values.items() if name in wanted}


def _attribute_values(stored: StoredMessage, names: Sequence[str]) -> dict[str, Any]:
    if "All" in names or ".*" in names:
        return {
            "MessageAttributes": stored.attributes,
            "MD5OfMessageAttributes": stored.attributes_md5,
        }
    prefixes = tuple(name[:-2] for name in names if name.endswith(".*"))
    chosen = {
        name: value
        for name, value in stored.attributes.items()
        if name in names or (prefixes and name.startswith(prefixes))
    }
    if not chosen:
        return {}
    return {
        "MessageAttributes": chosen,
        "MD5OfMessageAttributes": md5_of_attributes(chosen),
    }


def error_body(error: SqsError) -> bytes:
    """How SQS's JSON protocol writes a refusal."""
    return json.dumps({"__type": f"com.amazonaws.sqs#{error.code}", "message": error.text}).encode()
