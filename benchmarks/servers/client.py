"""A client of SQS that costs less than any server: no SDK, requests as bytes made in advance.

They are in AWS JSON 1.0 and signed with nothing: no server here checks a signature unless told to,
but all read the region, and some the account, from where a signature says them. Of an answer only
what the load needs is read.
"""

from __future__ import annotations

import asyncio
import json
import re
import uuid
from collections.abc import Sequence
from typing import Any, cast
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
_COUNTS = (
    "ApproximateNumberOfMessages",
    "ApproximateNumberOfMessagesNotVisible",
    "ApproximateNumberOfMessagesDelayed",
)
_LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*(\d+)", re.IGNORECASE)
_CLOSES = re.compile(rb"\r\nconnection:[ \t]*close", re.IGNORECASE)
_CHUNKED = re.compile(rb"\r\ntransfer-encoding:[ \t]*chunked", re.IGNORECASE)
_OK = re.compile(rb"HTTP/1\.[01] 200 ")


# Requests and answers.


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


class Requests:
    """The requests for one queue of one server."""

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


# One connection.


class CallFailed(Exception):
    """The server answered something else than 200, or hung up."""


class Connection(asyncio.Protocol):
    """One call at a time; connects at the first, and again where the server hangs up after each."""

    def __init__(self, endpoint: str) -> None:
        address = urlsplit(endpoint)
        self._host, self._port = address.hostname or "", address.port or 80
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._answer: asyncio.Future[bytes] | None = None
        self._buffer = bytearray()

    async def call(self, request: bytes) -> bytes:
        """The body of the answer. Raises `CallFailed` unless the server said 200."""
        if self._transport is None:
            await self._loop.create_connection(lambda: self, self._host, self._port)
        assert self._transport is not None
        self._answer = self._loop.create_future()
        self._transport.write(request)
        return await self._answer

    def close(self) -> None:
        """Hang up; a call that waits fails."""
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are no subclasses of asyncio's.
        self._transport = cast(asyncio.Transport, transport)
        self._buffer.clear()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(CallFailed(f"the server hung up: {exc}"))

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            return
        head = bytes(self._buffer[:end])
        body = self._body(head, end + 4)
        if body is None or self._answer is None:
            return
        self._buffer.clear()
        if _CLOSES.search(head) or head.startswith(b"HTTP/1.0"):
            self._hang_up()
        if self._answer.done():
            return
        if _OK.match(head):
            self._answer.set_result(body)
        else:
            self._answer.set_exception(CallFailed(f"{head.decode()}\n{body.decode()}"))

    def _body(self, head: bytes, start: int) -> bytes | None:
        length = _LENGTH.search(head)
        if length is not None:
            end = start + int(length[1])
            return bytes(self._buffer[start:end]) if len(self._buffer) >= end else None
        if _CHUNKED.search(head):
            return _unchunked(bytes(self._buffer[start:]))
        raise CallFailed(f"an answer without a length:\n{head.decode()}")

    def _hang_up(self) -> None:
        # At once: the next call comes before the loop would tell us that this one is closed.
        transport, self._transport = self._transport, None
        if transport is not None:
            transport.set_protocol(asyncio.Protocol())
            transport.close()


def _unchunked(data: bytes) -> bytes | None:
    parts: list[bytes] = []
    at = 0
    while (line := data.find(b"\r\n", at)) >= 0:
        size = int(data[at:line].split(b";")[0], 16)
        if len(data) < line + 2 + size + 2:
            return None
        if size == 0:
            return b"".join(parts)
        parts.append(data[line + 2 : line + 2 + size])
        at = line + 2 + size + 2
    return None


# A queue, as it is prepared and checked outside of the measured time.


def new_queue(endpoint: str) -> Requests:
    """An empty queue without pollers: some servers give messages to pollers that hung up."""
    reply = ask(Requests(endpoint), "CreateQueue", QueueName=uuid.uuid4().hex)
    return Requests(endpoint, reply["QueueUrl"])


def pending_in(requests: Requests) -> int:
    """How many messages the queue has, wherever they are."""
    reply = ask(requests, "GetQueueAttributes", AttributeNames=list(_COUNTS))
    return sum(int(reply["Attributes"][name]) for name in _COUNTS)


def ask(requests: Requests, operation: str, **request: Any) -> Any:
    """One call over a connection of its own."""

    async def once() -> bytes:
        connection = Connection(requests.endpoint)
        try:
            return await connection.call(requests.make(operation, **request))
        finally:
            connection.close()

    return json.loads(asyncio.run(once()))
