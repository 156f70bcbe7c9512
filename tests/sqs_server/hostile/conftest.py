"""A whole server in the test's process, and sockets that say to it what no SDK would."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import pytest

from pump.serving import ServerOptions, make_server


class Host:
    """A server that keeps nothing, and the connections that the test has to it."""

    def __init__(self, port: int, stack: AsyncExitStack) -> None:
        self._port = port
        self._stack = stack

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        self._stack.callback(writer.close)
        return reader, writer

    async def ask(self, request: bytes) -> int:
        """The status that a request, which ends its connection, is answered with."""
        reader, writer = await self.connect()
        writer.write(request)
        status_line = await reader.readline()
        writer.close()
        return int(status_line.split()[1])

    async def call(self, operation: str, **parameters: Any) -> dict[str, Any]:
        """What an operation answers; it must succeed."""
        reader, writer = await self.connect()
        writer.write(json_request(operation, json.dumps(parameters).encode()))
        return await read_answer(reader)


async def read_answer(reader: asyncio.StreamReader) -> dict[str, Any]:
    head = await reader.readuntil(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 "), head
    [length] = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
    body = await reader.readexactly(int(length.partition(b":")[2]))
    answer: dict[str, Any] = json.loads(body or b"{}")
    return answer


def json_request(operation: str, body: bytes, *headers: bytes) -> bytes:
    lines = [
        b"POST / HTTP/1.1",
        b"Host: localhost",
        b"X-Amz-Target: AmazonSQS." + operation.encode(),
        b"Content-Length: %d" % len(body),
        *headers,
    ]
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


@pytest.fixture
async def host() -> AsyncIterator[Host]:
    """A server with the queue `q`."""
    # Looking for the entry point reads files.
    server = await asyncio.to_thread(make_server, ServerOptions(port=0, queues=("q",)))
    await server.open()
    async with AsyncExitStack() as stack:
        stack.push_async_callback(server.aclose)
        yield Host(int(server.endpoint.rpartition(":")[2]), stack)
