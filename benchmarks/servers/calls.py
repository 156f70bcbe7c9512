"""Calls of SQS in AWS JSON 1.0, as bytes ready to be sent, and the little that is read of answers.

Signed with nothing: no server here checks a signature unless told to, but all read the region,
and some the account, from where a signature says them.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

import msgspec

BATCH = 10
"""The most messages SQS takes or gives in one call."""
BODY_BYTES = 200
_REGION = "us-east-1"
_HEAD = (
    "POST / HTTP/1.1\r\n"
    "Host: {host}\r\n"
    "Content-Type: application/x-amz-json-1.0\r\n"
    "X-Amz-Date: 20260101T000000Z\r\n"
    "Authorization: AWS4-HMAC-SHA256 "
    f"Credential=benchmark/20260101/{_REGION}/sqs/aws4_request, "
    "SignedHeaders=host;x-amz-date;x-amz-target, Signature=" + "0" * 64 + "\r\n"
    "X-Amz-Target: AmazonSQS.{operation}\r\n"
    "Content-Length: {length}\r\n\r\n"
)


class Message(msgspec.Struct):
    """A message as it was received; the rest of it is not looked at."""

    Body: str
    ReceiptHandle: str

    @property
    def number(self) -> int:
        """Which of the messages sent."""
        return int(self.Body[: self.Body.index(" ")])


class _Received(msgspec.Struct):
    Messages: list[Message] = []


class _Batch(msgspec.Struct):
    Successful: list[msgspec.Raw] = []
    Failed: list[msgspec.Raw] = []


_received = msgspec.json.Decoder(_Received)
_batch = msgspec.json.Decoder(_Batch)


class Calls:
    """Makes the calls for one queue of one server."""

    def __init__(self, endpoint: str, queue_url: str = "") -> None:
        self.endpoint = endpoint
        self.queue_url = queue_url
        self._host = urlsplit(endpoint).netloc

    def make(self, operation: str, **request: Any) -> bytes:
        """Any call, from its parameters."""
        if self.queue_url:
            request = {"QueueUrl": self.queue_url, **request}
        body = json.dumps(request).encode()
        return self._head(operation, len(body)) + body

    def send_one(self, number: int) -> bytes:
        """A message whose body begins with the number."""
        return self.make("SendMessage", MessageBody=body_of(number))

    def send_batch(self, numbers: Sequence[int]) -> bytes:
        """Up to ten of them."""
        entries = [{"Id": str(number), "MessageBody": body_of(number)} for number in numbers]
        return self.make("SendMessageBatch", Entries=entries)

    def receive(self, max_count: int = BATCH, *, wait_s: int = 20) -> bytes:
        """A long poll."""
        return self.make("ReceiveMessage", MaxNumberOfMessages=max_count, WaitTimeSeconds=wait_s)

    def delete_batch(self, messages: Sequence[Message]) -> bytes:
        """Delete what was received."""
        entries = [
            {"Id": str(at), "ReceiptHandle": each.ReceiptHandle} for at, each in enumerate(messages)
        ]
        body = msgspec.json.encode({"QueueUrl": self.queue_url, "Entries": entries})
        return self._head("DeleteMessageBatch", len(body)) + body

    def _head(self, operation: str, length: int) -> bytes:
        return _HEAD.format(host=self._host, operation=operation, length=length).encode()


def body_of(number: int) -> str:
    """About 200 bytes, the number first."""
    return f"{number} ".ljust(BODY_BYTES, "x")


def messages_in(answer: bytes) -> list[Message]:
    """What a receive brought."""
    return _received.decode(answer).Messages


def check_batch(answer: bytes, count: int) -> None:
    """Raises AssertionError unless every entry of a batch was accepted."""
    found = _batch.decode(answer)
    assert (len(found.Successful), len(found.Failed)) == (count, 0), answer
