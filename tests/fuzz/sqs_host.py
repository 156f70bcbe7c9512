"""A whole SQS server without a socket: engine, operations, HTTP, and a clock that stands still."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import attrs
from aiohttp import web
from structlog.testing import capture_logs

from gateways.sqs_server.engine import NullStore, SqsEngine
from gateways.sqs_server.http.connection import (
    Connection,
    FastLane,
    HttpLimits,
    OrdinaryReader,
    Watch,
)
from gateways.sqs_server.http.exchange import Access, Exchange
from gateways.sqs_server.operations import Operations
from pump.clock import yield_to_loop
from pump.observability import vocabulary
from pump.testing.virtual_clock import VirtualClock

from ..sqs_server.http.line import MemoryTransport

_TURNS = 30
_STATUS = re.compile(rb"^HTTP/1\.1 (\d{3}) ", re.MULTILINE)
KEY, SECRET = "AKIAEXAMPLE", "s3cret"


def json_request(operation: str, body: bytes, *headers: bytes) -> bytes:
    lines = [
        b"POST / HTTP/1.1",
        b"Host: localhost",
        b"X-Amz-Target: AmazonSQS." + operation.encode(),
        b"Content-Length: %d" % len(body),
        *headers,
    ]
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


def form_request(text: bytes) -> bytes:
    lines = [
        b"POST /000000000000/q HTTP/1.1",
        b"Host: localhost",
        b"Content-Type: application/x-www-form-urlencoded",
        b"Content-Length: %d" % len(text),
    ]
    return b"\r\n".join(lines) + b"\r\n\r\n" + text


@attrs.define(eq=False)
class SqsHost:
    """Serves connections that are only objects; `faults` is what nobody may ever see."""

    clock: VirtualClock
    exchange: Exchange
    limits: HttpLimits
    faults: list[Any]

    async def say(self, *chunks: bytes) -> bytes:
        """All that the server answers on one connection, which is then hung up."""
        transport = MemoryTransport()
        connection = Connection(
            web.Server(self.exchange.respond, handler_cancellation=True),
            Watch(self.clock, self.limits),
            FastLane(OrdinaryReader(self.limits), self.exchange.reply),
            loop=asyncio.get_running_loop(),
            access_log=None,
            auto_decompress=False,
            lingering_time=0,
            max_line_size=self.limits.max_line_bytes,
            max_field_size=self.limits.max_header_bytes,
        )
        transport.protocol = connection
        connection.connection_made(transport)
        for chunk in chunks:
            if chunk and not transport.is_closing():
                connection.data_received(chunk)
            await self.turn()
        transport.close()
        await self.turn()
        return transport.written

    async def turn(self) -> None:
        for _ in range(_TURNS):
            await yield_to_loop()

    async def call(self, operation: str, **parameters: Any) -> Mapping[str, Any]:
        """What an operation answers; it must succeed."""
        heard = await self.say(json_request(operation, json.dumps(parameters).encode()))
        head, _, body = heard.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 "), heard
        answer: Mapping[str, Any] = json.loads(body or b"{}")
        return answer


def statuses(heard: bytes) -> list[int]:
    return [int(found) for found in _STATUS.findall(heard)]


@asynccontextmanager
async def sqs_host(*, is_verified: bool = False) -> AsyncIterator[SqsHost]:
    """A server with the queues q, dead and line.fifo, and a message in flight in each."""
    faults: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, fault: faults.append(fault))
    clock, limits = VirtualClock(), HttpLimits()
    engine = SqsEngine(clock, NullStore())
    await engine.open()
    operations = Operations(engine, clock=clock)
    access = Access(secrets={KEY: SECRET} if is_verified else {})
    exchange = Exchange(operations.call, access, clock=clock, limits=limits, version="1")
    with capture_logs() as logs:
        yield SqsHost(clock, exchange, limits, faults)
        await clock.advance(60)
        await engine.aclose()
    faults += [line for line in logs if line["event"] == vocabulary.REQUEST_FAILED]
    assert not faults, faults
