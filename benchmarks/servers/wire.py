"""Wire: one connection to an SQS server, over which calls go as bytes made in advance.

A client that costs less than any server: no SDK, no signature, no header parsed but those that
say where an answer ends.
"""

from __future__ import annotations

import asyncio
import re
from typing import cast
from urllib.parse import urlsplit

_LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*(\d+)", re.IGNORECASE)
_CLOSES = re.compile(rb"\r\nconnection:[ \t]*close", re.IGNORECASE)
_CHUNKED = re.compile(rb"\r\ntransfer-encoding:[ \t]*chunked", re.IGNORECASE)
_OK = re.compile(rb"HTTP/1\.[01] 200 ")


class Refused(Exception):
    """The server answered something else than 200, or hung up."""


class Wire(asyncio.Protocol):
    """One call at a time; connects at the first, and again where the server hangs up after each."""

    def __init__(self, endpoint: str) -> None:
        address = urlsplit(endpoint)
        self._host, self._port = address.hostname or "", address.port or 80
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._answer: asyncio.Future[bytes] | None = None
        self._buffer = bytearray()

    async def call(self, request: bytes) -> bytes:
        """The body of the answer. Raises `Refused` unless the server said 200."""
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
            self._answer.set_exception(Refused(f"the server hung up: {exc}"))

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
            self._answer.set_exception(Refused(f"{head.decode()}\n{body.decode()}"))

    def _body(self, head: bytes, start: int) -> bytes | None:
        length = _LENGTH.search(head)
        if length is not None:
            end = start + int(length[1])
            return bytes(self._buffer[start:end]) if len(self._buffer) >= end else None
        if _CHUNKED.search(head):
            return _unchunked(bytes(self._buffer[start:]))
        raise Refused(f"an answer without a length:\n{head.decode()}")

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
