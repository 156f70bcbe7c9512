"""A stand-in for SQS, made for measuring clients: fast, in memory, standard queues only.

python -m benchmarks.servers.sqs_stand_in

It listens on a free loopback port, prints its address as one line, and ends when its standard
input does. It speaks the JSON protocol over HTTP/1.1, checks no signature, counts calls by
operation, and can add latency to each call without keeping others from theirs. How faithful
Pumphouse is to SQS is tested elsewhere, on LocalStack; nothing but a benchmark should rely on
this.

Beside SQS it answers, for the benchmark:

    POST /hold          show no message until /release
    GET  /polled        answers as soon as a receive waits for messages
    POST /release?ms=N  add N ms to each call, count from zero, show the messages
    GET  /drained       answers as soon as the last message is deleted, with the counts
    GET  /counts        calls by operation, and processor time, since the last /release
    POST /flush         let no receive wait any more
"""

from __future__ import annotations

import asyncio
import re
import socket
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import attrs
import msgspec

from .sqs_queues import (
    ACCOUNT,
    Queue,
    Reply,
    Request,
    SqsError,
    each,
    entries,
    error_body,
    is_receipt,
    received,
    sent,
)

_LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*(\d+)")
_TARGET = re.compile(rb"\r\nx-amz-target:[ \t]*amazonsqs\.(\w+)")
_HEAD = (
    b"HTTP/1.1 %s\r\n"
    b"x-amzn-RequestId: 5aad2b1c-7c0d-4d3b-9d4f-3c2b1a000000\r\n"
    b"Content-Type: application/x-amz-json-1.0\r\n"
    b"%sContent-Length: %d\r\n\r\n"
)
_encode = msgspec.json.encode
_decode = msgspec.json.decode
Respond = Callable[[Reply], None]

_DEFAULTS = {
    "VisibilityTimeout": "30",
    "DelaySeconds": "0",
    "MaximumMessageSize": "1048576",
    "MessageRetentionPeriod": "345600",
    "ReceiveMessageWaitTimeSeconds": "0",
    "SqsManagedSseEnabled": "true",
}


@attrs.define(eq=False)
class Poll:
    """A receive that waits for messages."""

    queue: Queue
    request: Request
    respond: Respond
    timer: asyncio.TimerHandle | None = None


class Service:
    """Standard queues for any caller, one event loop's worth of them."""

    def __init__(self, base_url: str, loop: asyncio.AbstractEventLoop) -> None:
        self.calls: Counter[str] = Counter()
        self._base_url = base_url
        self._loop = loop
        self._queues: dict[str, Queue] = {}
        self._polls: list[Poll] = []
        self._alarms: dict[str, asyncio.TimerHandle] = {}
        self._is_held = False
        self._is_flushed = False
        self._when_polled: list[Callable[[], None]] = []
        self._when_drained: list[Callable[[], None]] = []
        self._operations: dict[str, Callable[[Request], Reply]] = {
            "createqueue": self._create_queue,
            "deletequeue": self._delete_queue,
            "getqueueurl": self._get_queue_url,
            "listqueues": self._list_queues,
            "getqueueattributes": self._get_queue_attributes,
            "setqueueattributes": self._set_queue_attributes,
            "tagqueue": self._tag_queue,
            "listqueuetags": self._list_queue_tags,
            "purgequeue": self._purge_queue,
            "sendmessage": self._send_message,
            "sendmessagebatch": self._send_message_batch,
            "deletemessage": self._delete_message,
            "deletemessagebatch": self._delete_message_batch,
            "changemessagevisibility": self._change_message_visibility,
            "changemessagevisibilitybatch": self._change_message_visibility_batch,
        }

    def call(self, operation: str, request: Request, respond: Respond) -> Poll | None:
        """Perform an operation (named in lower case) and respond, now or, for a poll, later.

        Raises `SqsError`. The poll, if one is returned, still waits; `abandon` it when its
        caller goes away, or it would take messages.
        """
        if operation == "receivemessage":
            return self._receive_message(request, respond)
        perform = self._operations.get(operation)
        if perform is None:
            raise SqsError("UnsupportedOperation", f"the stand-in does not know {operation}")
        respond(perform(request))
        return None

    def abandon(self, poll: Poll) -> None:
        """Forget a poll without a response."""
        if poll in self._polls:
            self._polls.remove(poll)
            if poll.timer is not None:
                poll.timer.cancel()

    # What a benchmark asks for.

    def hold(self) -> None:
        """Show no message until `release`."""
        self._is_held = True

    def release(self) -> None:
        """Show the messages that were held back, and count calls from here on."""
        self._is_held = False
        self.calls.clear()
        self._serve_polls()

    def flush(self) -> None:
        """Let no receive wait any more; those that do come back empty."""
        self._is_flushed = True
        for poll in list(self._polls):
            self._end_poll(poll)

    def when_polled(self, tell: Callable[[], None]) -> None:
        """Tell as soon as a receive waits for messages."""
        self._when_polled.append(tell)
        if self._polls:
            self._tell(self._when_polled)

    def when_drained(self, tell: Callable[[], None]) -> None:
        """Tell as soon as no queue has a message, visible or hidden."""
        self._when_drained.append(tell)
        self._tell_if_drained()

    # Queues.

    def _create_queue(self, request: Request) -> Reply:
        name, attributes = request["QueueName"], request.get("Attributes") or {}
        if name.endswith(".fifo"):
            raise SqsError("UnsupportedOperation", "the stand-in has standard queues only")
        if name not in self._queues:
            url = f"{self._base_url}/{ACCOUNT}/{name}"
            self._queues[name] = Queue(name, url, _DEFAULTS | attributes, now_s=time.time())
            self._queues[name].tags.update(request.get("tags") or {})
        return {"QueueUrl": self._queues[name].url}

    def _delete_queue(self, request: Request) -> Reply:
        del self._queues[self._queue(request).name]
        return {}

    def _get_queue_url(self, request: Request) -> Reply:
        return {"QueueUrl": self._named(request["QueueName"]).url}

    def _list_queues(self, request: Request) -> Reply:
        prefix = request.get("QueueNamePrefix") or ""
        urls = [queue.url for name, queue in self._queues.items() if name.startswith(prefix)]
        return {"QueueUrls": urls} if urls else {}

    def _get_queue_attributes(self, request: Request) -> Reply:
        queue = self._queue(request)
        queue.reveal_due(time.time())
        found = {
            **queue.attributes,
            "QueueArn": f"arn:aws:sqs:us-east-1:{ACCOUNT}:{queue.name}",
            "ApproximateNumberOfMessages": str(queue.visible_count),
            "ApproximateNumberOfMessagesNotVisible": str(queue.in_flight_count),
            "ApproximateNumberOfMessagesDelayed": str(queue.delayed_count),
            "CreatedTimestamp": str(int(queue.created_s)),
            "LastModifiedTimestamp": str(int(queue.created_s)),
        }
        wanted = request.get("AttributeNames") or []
        chosen = {name: found[name] for name in found if "All" in wanted or name in wanted}
        return {"Attributes": chosen} if chosen else {}

    def _set_queue_attributes(self, request: Request) -> Reply:
        self._queue(request).attributes.update(request["Attributes"])
        return {}

    def _tag_queue(self, request: Request) -> Reply:
        self._queue(request).tags.update(request["Tags"])
        return {}

    def _list_queue_tags(self, request: Request) -> Reply:
        return {"Tags": self._queue(request).tags}

    def _purge_queue(self, request: Request) -> Reply:
        self._queue(request).purge()
        self._tell_if_drained()
        return {}

    # Messages.

    def _send_message(self, request: Request) -> Reply:
        queue = self._queue(request)
        stored = queue.send(request, now_s=time.time())
        self._serve_polls()
        self._set_alarm(queue)
        return sent(stored)

    def _send_message_batch(self, request: Request) -> Reply:
        queue, now_s = self._queue(request), time.time()
        stored = [(entry["Id"], queue.send(entry, now_s=now_s)) for entry in entries(request)]
        self._serve_polls()
        self._set_alarm(queue)
        return {"Successful": [{"Id": id_, **sent(each_)} for id_, each_ in stored], "Failed": []}

    def _receive_message(self, request: Request, respond: Respond) -> Poll | None:
        queue = self._queue(request)
        wait_s = request.get("WaitTimeSeconds")
        if wait_s is None:
            wait_s = queue.attributes["ReceiveMessageWaitTimeSeconds"]
        poll = Poll(queue, request, respond)
        if self._serve(poll):
            return None
        if not float(wait_s) or self._is_flushed:
            respond({})
            return None
        poll.timer = self._loop.call_later(float(wait_s), self._end_poll, poll)
        self._polls.append(poll)
        self._tell(self._when_polled)
        return poll

    def _delete_message(self, request: Request) -> Reply:
        self._delete(self._queue(request), request["ReceiptHandle"])
        self._tell_if_drained()
        return {}

    def _delete_message_batch(self, request: Request) -> Reply:
        queue = self._queue(request)
        reply = each(request, lambda entry: self._delete(queue, entry["ReceiptHandle"]))
        self._tell_if_drained()
        return reply

    def _change_message_visibility(self, request: Request) -> Reply:
        self._change_visibility(self._queue(request), request)
        return {}

    def _change_message_visibility_batch(self, request: Request) -> Reply:
        queue = self._queue(request)
        return each(request, lambda entry: self._change_visibility(queue, entry))

    def _delete(self, queue: Queue, receipt: str) -> None:
        if not is_receipt(receipt):
            raise SqsError("ReceiptHandleIsInvalid", "The input receipt handle is invalid.")
        queue.delete(receipt)

    def _change_visibility(self, queue: Queue, entry: Request) -> None:
        visibility_s = float(entry["VisibilityTimeout"])
        receipt = entry["ReceiptHandle"]
        if not is_receipt(receipt):
            raise SqsError("ReceiptHandleIsInvalid", "The input receipt handle is invalid.")
        if not queue.change_visibility(receipt, visibility_s, now_s=time.time()):
            raise SqsError("MessageNotInflight", "The message referred to isn't in flight.")
        self._serve_polls()
        self._set_alarm(queue)

    # Waiting.

    def _serve(self, poll: Poll) -> bool:
        if self._is_held:
            return False
        queue, request, now_s = poll.queue, poll.request, time.time()
        queue.reveal_due(now_s)
        visibility_s = request.get("VisibilityTimeout")
        taken = queue.receive(
            request.get("MaxNumberOfMessages") or 1,
            queue.visibility_s if visibility_s is None else float(visibility_s),
            now_s=now_s,
        )
        if taken:
            poll.respond({"Messages": [received(stored, request) for stored in taken]})
            self._set_alarm(queue)
        return bool(taken)

    def _serve_polls(self) -> None:
        for poll in list(self._polls):
            if self._serve(poll):
                self.abandon(poll)

    def _end_poll(self, poll: Poll) -> None:
        self.abandon(poll)
        poll.respond({})

    def _set_alarm(self, queue: Queue) -> None:
        """Wake up when a hidden message appears, once a queue: most are deleted before."""
        if queue.name not in self._alarms and queue.next_due_s is not None:
            wait_s = max(0.0, queue.next_due_s - time.time())
            self._alarms[queue.name] = self._loop.call_later(wait_s, self._on_alarm, queue)

    def _on_alarm(self, queue: Queue) -> None:
        del self._alarms[queue.name]
        queue.reveal_due(time.time())
        self._serve_polls()
        self._set_alarm(queue)

    def _tell_if_drained(self) -> None:
        if self._when_drained and all(queue.is_empty for queue in self._queues.values()):
            self._tell(self._when_drained)

    def _tell(self, waiting: list[Callable[[], None]]) -> None:
        told = waiting.copy()
        waiting.clear()
        for tell in told:
            tell()

    def _queue(self, request: Request) -> Queue:
        return self._named(request["QueueUrl"].rsplit("/", 1)[-1])

    def _named(self, name: str) -> Queue:
        queue = self._queues.get(name)
        if queue is None:
            raise SqsError(
                "QueueDoesNotExist",
                "The specified queue does not exist.",
                "AWS.SimpleQueueService.NonExistentQueue",
            )
        return queue


# HTTP/1.1: just enough of it for the SDKs, and the private paths of the benchmark.


class Control:
    """The benchmark's side: latency, counts and the moments that it waits for."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._started_cpu_s = time.process_time()
        self.latency_s = 0.0

    def call(self, target: str, respond: Callable[[Mapping[str, Any]], None]) -> None:
        """Answer a private path. Raises `SqsError` for one that is not known."""
        path, _, query = target.partition("?")
        if path == "/hold":
            self._service.hold()
        elif path == "/polled":
            return self._service.when_polled(lambda: respond({}))
        elif path == "/release":
            self._release(float(query.removeprefix("ms=") or 0))
        elif path == "/drained":
            return self._service.when_drained(lambda: respond(self._counts()))
        elif path == "/counts":
            return respond(self._counts())
        elif path == "/flush":
            self._service.flush()
        else:
            raise SqsError("UnknownPath", f"{path} is not a path of the stand-in")
        respond({})

    def _release(self, latency_ms: float) -> None:
        self.latency_s = latency_ms / 1000
        self._started_cpu_s = time.process_time()
        self._service.release()

    def _counts(self) -> Mapping[str, Any]:
        cpu_s = time.process_time() - self._started_cpu_s
        return {"calls": dict(self._service.calls), "cpu_s": cpu_s}


class Connection(asyncio.Protocol):
    """One client's connection, kept alive; one request at a time, in order."""

    def __init__(self, service: Service, control: Control) -> None:
        self._service = service
        self._control = control
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray()
        self._is_busy = False
        self._was_continued = False
        self._poll: Poll | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if self._poll is not None:
            self._service.abandon(self._poll)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        self._take_request()

    def _take_request(self) -> None:
        if self._is_busy or (end := self._buffer.find(b"\r\n\r\n")) < 0:
            return
        head = bytes(self._buffer[:end]).lower()
        length = _LENGTH.search(head)
        total = end + 4 + (int(length[1]) if length else 0)
        if len(self._buffer) < total:
            self._continue_if_asked(head)
            return
        body = bytes(self._buffer[end + 4 : total])
        del self._buffer[:total]
        self._is_busy, self._was_continued = True, False
        self._route(head, body)

    def _continue_if_asked(self, head: bytes) -> None:
        if b"\r\nexpect:" in head and not self._was_continued and self._transport:
            self._was_continued = True
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def _route(self, head: bytes, body: bytes) -> None:
        target = _TARGET.search(head)
        if target is None:
            path = head.split(b" ", 2)[1].decode()
            self._answer(lambda: self._control.call(path, self._respond))
            return
        operation = target[1].decode()
        self._service.calls[operation] += 1
        if self._control.latency_s:
            self._loop.call_later(self._control.latency_s, self._perform, operation, body)
        else:
            self._perform(operation, body)

    def _perform(self, operation: str, body: bytes) -> None:
        if self._transport is not None:
            self._answer(lambda: self._start(operation, _decode(body)))

    def _start(self, operation: str, request: Mapping[str, Any]) -> None:
        self._poll = self._service.call(operation, request, self._respond)

    def _answer(self, perform: Callable[[], None]) -> None:
        try:
            perform()
        except SqsError as error:
            fault = f"{error.query_code or error.code};Sender".encode()
            self._write(
                b"400 Bad Request", error_body(error), b"x-amzn-query-error: %s\r\n" % fault
            )

    def _respond(self, reply: Mapping[str, Any]) -> None:
        self._write(b"200 OK", _encode(reply))

    def _write(self, status: bytes, body: bytes, more: bytes = b"") -> None:
        self._is_busy, self._poll = False, None
        if self._transport is None:
            return
        self._transport.write(_HEAD % (status, more, len(body)) + body)
        if self._buffer:
            self._loop.call_soon(self._take_request)


async def serve() -> None:
    """Print the address and serve until standard input ends."""
    loop = asyncio.get_running_loop()
    listening = socket.create_server(("127.0.0.1", 0), backlog=128)
    address = f"http://127.0.0.1:{listening.getsockname()[1]}"
    service = Service(address, loop)
    control = Control(service)
    server = await loop.create_server(lambda: Connection(service, control), sock=listening)
    print(address, flush=True)
    await loop.run_in_executor(None, sys.stdin.read)
    server.close()


if __name__ == "__main__":
    asyncio.run(serve())
