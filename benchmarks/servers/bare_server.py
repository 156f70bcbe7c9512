"""A server that does next to nothing, to tell the machine's share in a latency from the server's.

One queue in memory, no validation, no leases, no state worth the name; but a send is answered once
its body is on the disk, as with `pump local`: appended to a file, one `fdatasync` for all that wait
for it. What this one takes on a machine, no server in Python undercuts by much.

python -m benchmarks.servers.bare_server FILE
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
from collections import deque
from collections.abc import Sequence
from itertools import count
from typing import cast

import msgspec
import uvloop

_LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)
_OPERATION = re.compile(rb"x-amz-target: *AmazonSQS\.(\w+)", re.IGNORECASE)
_MOST = 10


class _Send(msgspec.Struct):
    MessageBody: str


class _Delete(msgspec.Struct):
    Entries: list[msgspec.Raw]


class _Queue:
    """One queue: what waits, who waits for it, and what is to be written."""

    def __init__(self, path: str) -> None:
        self.messages: deque[dict[str, str]] = deque()
        self.pollers: deque[_Connection] = deque()
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._unwritten: list[tuple[_Connection, str]] = []
        self._is_writing = False
        self._numbers = count()

    def take(self, sender: _Connection, body: str) -> None:
        self._unwritten.append((sender, body))
        if not self._is_writing:
            self._is_writing = True
            asyncio.get_running_loop().call_soon(self._write)

    def serve(self) -> None:
        while self.messages and self.pollers:
            batch = [self.messages.popleft() for _ in range(min(_MOST, len(self.messages)))]
            self.pollers.popleft().answer({"Messages": batch})

    def _write(self) -> None:
        batch, self._unwritten = self._unwritten, []
        loop = asyncio.get_running_loop()
        written = loop.run_in_executor(None, self._sync, [body for _, body in batch])
        written.add_done_callback(lambda _: self._written(batch))

    def _sync(self, bodies: Sequence[str]) -> None:
        os.write(self._file, "\n".join(bodies).encode())
        os.fdatasync(self._file)

    def _written(self, batch: Sequence[tuple[_Connection, str]]) -> None:
        if self._unwritten:
            self._write()
        else:
            self._is_writing = False
        for sender, body in batch:
            number = str(next(self._numbers))
            self.messages.append({"MessageId": number, "ReceiptHandle": number, "Body": body})
            sender.answer({"MessageId": number})
        self.serve()


class _Connection(asyncio.Protocol):
    """Reads one request after the other; a client sends the next only after the answer."""

    def __init__(self, queue: _Queue) -> None:
        self._queue = queue
        self._buffer = b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        head, separator, body = self._buffer.partition(b"\r\n\r\n")
        length, operation = _LENGTH.search(head), _OPERATION.search(head)
        if not separator or length is None or operation is None or len(body) < int(length[1]):
            return
        self._buffer = b""
        self._carry_out(operation[1].decode(), body)

    def answer(self, content: object) -> None:
        body = msgspec.json.encode(content)
        head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n\r\n"
        if self._transport is not None:
            self._transport.write(head.encode() + body)

    def _carry_out(self, operation: str, body: bytes) -> None:
        match operation:
            case "SendMessage":
                self._queue.take(self, msgspec.json.decode(body, type=_Send).MessageBody)
            case "ReceiveMessage":
                self._queue.pollers.append(self)
                self._queue.serve()
            case "DeleteMessageBatch":
                entries = msgspec.json.decode(body, type=_Delete).Entries
                self.answer({"Successful": entries})
            case "CreateQueue":
                self.answer({"QueueUrl": "/queue"})
            case _:
                waiting, none = str(len(self._queue.messages)), "0"
                kinds = ("", "NotVisible", "Delayed")
                counts = zip(kinds, (waiting, none, none), strict=True)
                attributes = {f"ApproximateNumberOfMessages{kind}": n for kind, n in counts}
                self.answer({"Attributes": attributes})


async def _serve(path: str) -> None:
    queue = _Queue(path)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: _Connection(queue), "127.0.0.1", 0)
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(_serve(sys.argv[1]))
