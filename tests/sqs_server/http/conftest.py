"""A server on a free port whose operations are the test's, and a socket to talk to it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from typing import Any

import attrs
import pytest

from gateways.sqs_server.http import Bound, HttpServer
from gateways.sqs_server.http.connection import OrdinaryReader
from gateways.sqs_server.protocol import Call

Operate = Callable[[Call], Awaitable[Mapping[str, Any]]]


class FakeOperations:
    """Remembers calls, and answers them with `result`, or as `operate` says."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.result: Mapping[str, Any] = {}
        self.operate: Operate | None = None

    async def call(self, call: Call) -> Mapping[str, Any]:
        self.calls.append(call)
        return self.result if self.operate is None else await self.operate(call)


@attrs.frozen
class Reply:
    status: int
    headers: dict[str, str]
    body: bytes


@attrs.frozen
class Wire:
    """A connection that says what it is told to, byte for byte."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def say(self, *data: bytes) -> None:
        self.writer.write(b"".join(data))
        await self.writer.drain()

    async def reply(self, *, has_body: bool = True) -> Reply:
        status_line = await self.reader.readline()
        headers = {}
        while (line := await self.reader.readline()) not in (b"\r\n", b""):
            name, _, value = line.decode().partition(":")
            headers[name.lower()] = value.strip()
        length = int(headers.get("content-length", 0)) if has_body else 0
        body = await self.reader.readexactly(length)
        return Reply(int(status_line.split()[1]), headers, body)

    async def is_closed(self) -> bool:
        """Wait for the other side to close; anything it still says fails the test."""
        try:
            rest = await self.reader.read()
        except ConnectionError:
            return True
        assert rest == b""
        return True


def json_request(body: bytes = b"{}", operation: str = "ListQueues", *headers: bytes) -> bytes:
    return b"\r\n".join(
        [
            b"POST / HTTP/1.1",
            b"Host: localhost",
            b"X-Amz-Target: AmazonSQS." + operation.encode(),
            b"Content-Length: %d" % len(body),
            *headers,
            b"",
            body,
        ]
    )


class World:
    """Starts servers and opens connections, and closes them all at the end."""

    def __init__(self, stack: AsyncExitStack) -> None:
        self._stack = stack
        self.operations = FakeOperations()
        self.bound = Bound("", 0)
        self.server = HttpServer(self.operations.call)

    async def start(self, host: str = "127.0.0.1", **options: Any) -> HttpServer:
        self.server = HttpServer(self.operations.call, **options)
        self._stack.push_async_callback(self.server.aclose)
        self.bound = await self.server.start(host, 0)
        return self.server

    async def connect(self) -> Wire:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.bound.port)
        self._stack.callback(writer.close)
        return Wire(reader, writer)

    async def ask(self, request: bytes) -> Reply:
        wire = await self.connect()
        await wire.say(request)
        return await wire.reply()


def _read_nothing(reader: OrdinaryReader, data: bytes) -> None:
    return None


@pytest.fixture(params=["fast lane", "aiohttp's lane"])
async def world(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[World]:
    """Every test of it runs twice: whichever lane serves a request, nobody can tell."""
    if request.param != "fast lane":
        monkeypatch.setattr(OrdinaryReader, "read", _read_nothing)
    async with AsyncExitStack() as stack:
        yield World(stack)
