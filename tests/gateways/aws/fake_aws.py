"""An AWS endpoint that answers as it is told: a real HTTP server on loopback.

It knows nothing of queues. Each request takes the next reply of the script, or, when that is
over, an empty success in the protocol of the service that was asked.
"""

from __future__ import annotations

import asyncio
import json
from asyncio import StreamReader, StreamWriter
from collections import deque
from collections.abc import Mapping
from typing import Self

import attrs


@attrs.frozen(kw_only=True)
class Seen:
    """One request as it arrived."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def operation(self) -> str:
        return self.headers.get("x-amz-target", "").rpartition(".")[2]


@attrs.frozen(kw_only=True)
class Answer:
    """Reply with this; a `sent` shorter than the body breaks off there."""

    status: int = 200
    body: bytes = b"{}"
    headers: Mapping[str, str] = attrs.field(factory=dict)
    sent: int | None = None


@attrs.frozen
class Reset:
    """Break the connection without a word."""


@attrs.frozen
class HalfHead:
    """Send this much of a reply's head, and break the connection."""

    text: bytes


@attrs.frozen
class Wait:
    """Say nothing until released, or for ever."""

    release: asyncio.Event = attrs.field(factory=asyncio.Event)


Step = Answer | Reset | HalfHead | Wait


def refusal(status: int, code: str, message: str = "no", **headers: str) -> Answer:
    """An error as SQS words it in JSON."""
    body = json.dumps({"__type": f"com.amazonaws.sqs#{code}", "message": message}).encode()
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Answer(status=status, body=body, headers=named)


def query_refusal(status: int, code: str, message: str = "no") -> Answer:
    """An error as SNS and S3 word it in XML."""
    inner = f"<Error><Code>{code}</Code><Message>{message}</Message></Error>"
    return Answer(status=status, body=f"<ErrorResponse>{inner}</ErrorResponse>".encode())


class FakeAws:
    """Plays a script, and counts."""

    def __init__(self) -> None:
        self.script: deque[Step] = deque()
        self.always: Step | None = None
        """What every request gets once the script is over."""
        self.seen: list[Seen] = []
        self.busy = 0
        self.max_busy = 0
        self.connection_count = 0
        self.open_count = 0
        self._server: asyncio.Server | None = None
        self._port = 0
        self._changed = asyncio.Condition()
        self._talks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        await self.start(0)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self, port: int) -> None:
        """Listen, on any port if it is 0."""
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", port)
        self._port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> int:
        """Break every connection, listen no more, and return the port."""
        assert self._server is not None
        self._server.close()
        for talk in self._talks:
            talk.cancel()
        if self._talks:
            await asyncio.wait(self._talks)
        return self._port

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    async def busy_with(self, count: int) -> None:
        """Return once so many requests are being served."""
        async with self._changed:
            await self._changed.wait_for(lambda: self.busy == count)

    async def connected_to(self, count: int) -> None:
        """Return once so many connections are open."""
        async with self._changed:
            await self._changed.wait_for(lambda: self.open_count == count)

    async def _accept(self, reader: StreamReader, writer: StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._talks.add(task)
        self.connection_count += 1
        await self._count(open_by=1)
        try:
            while await self._serve(reader, writer):
                pass
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            self._talks.discard(task)
            writer.transport.abort()
            await self._count(open_by=-1)

    async def _serve(self, reader: StreamReader, writer: StreamWriter) -> bool:
        seen = await _read(reader, writer)
        self.seen.append(seen)
        step = self.script.popleft() if self.script else self.always or _success(seen)
        await self._count(busy_by=1)
        try:
            if isinstance(step, Wait):
                # A client that goes away ends the wait, as it would at a real server.
                await _first(step.release.wait(), reader.read(1))
                step = _success(seen)
            if isinstance(step, HalfHead):
                writer.write(step.text)
                await writer.drain()
                writer.close()
                return False
            return not isinstance(step, Reset) and await _reply(writer, step)
        finally:
            await self._count(busy_by=-1)

    async def _count(self, *, busy_by: int = 0, open_by: int = 0) -> None:
        self.busy += busy_by
        self.open_count += open_by
        self.max_busy = max(self.max_busy, self.busy)
        async with self._changed:
            self._changed.notify_all()


async def _first(*awaitables: object) -> None:
    tasks = [asyncio.ensure_future(each) for each in awaitables]  # type: ignore[call-overload]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


async def _read(reader: StreamReader, writer: StreamWriter) -> Seen:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    first, *lines = head.strip().split("\r\n")
    method, path, _ = first.split(" ", 2)
    pairs = (line.split(":", 1) for line in lines)
    headers = {name.strip().lower(): value.strip() for name, value in pairs}
    if "expect" in headers:
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    if headers.get("transfer-encoding") == "chunked":
        body = await _read_chunks(reader)
    else:
        body = await reader.readexactly(int(headers.get("content-length", 0)))
    return Seen(method=method, path=path, headers=headers, body=body)


async def _read_chunks(reader: StreamReader) -> bytes:
    body = b""
    while size := int((await reader.readline()).split(b";")[0], 16):
        body += (await reader.readexactly(size + 2))[:-2]
    await reader.readline()
    return body


async def _reply(writer: StreamWriter, answer: Answer) -> bool:
    lines = [f"HTTP/1.1 {answer.status} Told", f"content-length: {len(answer.body)}"]
    lines += [f"{name}: {value}" for name, value in answer.headers.items()]
    is_whole = answer.sent is None
    body = answer.body if is_whole else answer.body[: answer.sent]
    writer.write("\r\n".join([*lines, "", ""]).encode() + body)
    await writer.drain()
    return is_whole


def _success(seen: Seen) -> Answer:
    if "x-amz-target" in seen.headers:
        return Answer(headers={"content-type": "application/x-amz-json-1.0"})
    if b"Action=" in seen.body:
        action = dict(pair.split("=") for pair in seen.body.decode().split("&"))["Action"]
        return Answer(body=f"<{action}Response><{action}Result/></{action}Response>".encode())
    return Answer(body=b"", headers={"etag": '"1"'})
