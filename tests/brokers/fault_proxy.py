"""A reverse proxy on loopback that lets requests fail as networks and services do.

    async with FaultProxy(aws.endpoint_url, FaultPlan.random(7)) as proxy:
        there = aws.through(proxy.url)

It runs on the loop that entered it, so a blocking client must call from another thread.
Queue URLs keep naming the server itself; the SDKs nevertheless talk to their endpoint.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from asyncio import StreamReader, StreamWriter
from collections import Counter
from contextlib import suppress
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

from pump.clock import SYSTEM_CLOCK, Clock

from .fault_plan import NO_FAULTS, Fault, FaultKind, FaultPlan
from .fault_replies import server_error, throttling
from .http_messages import HttpMessage, read_request, read_response

# S3 bodies and SQS batches pass through whole; the limit only concerns heads.
_LIMIT = 1 << 20
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


class HungUp(Exception):
    """One of the two connections is to be closed, or is closed already."""


class FaultProxy:
    """Forwards every request to `upstream_url`, unless the plan has something else for it.

    `counts` are the requests that arrived, by operation; `faults` those that met one, by kind;
    `connection_count` is how many connections clients have opened.
    """

    def __init__(
        self, upstream_url: str, plan: FaultPlan = NO_FAULTS, *, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        address = urlsplit(upstream_url)
        assert address.hostname is not None
        assert address.port is not None
        self.plan = plan
        self.counts: Counter[str] = Counter()
        self.faults: Counter[FaultKind] = Counter()
        self.connection_count = 0
        self._upstream = (address.hostname, address.port)
        self._clock = clock
        self._place: socket.socket | None = None
        self._server: asyncio.Server | None = None
        self._links: dict[asyncio.Task[None], StreamWriter] = {}
        self._arrival = asyncio.Event()

    @property
    def port(self) -> int:
        assert self._place is not None, "the proxy is not open"
        port: int = self._place.getsockname()[1]
        return port

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def __aenter__(self) -> Self:
        # Bound but never listening: it keeps the port ours while connections are refused.
        self._place = _bound(0)
        await self.restore()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.sever()
        assert self._place is not None
        self._place.close()

    async def sever(self) -> None:
        """Reset every connection and refuse new ones, as a machine without the service does."""
        if self._server is not None:
            self._server.close()
            self._server = None
        links = dict(self._links)
        for task, writer in links.items():
            _reset(writer)
            task.cancel()
        await asyncio.gather(*links, return_exceptions=True)

    async def restore(self) -> None:
        """Accept connections again, at the same address."""
        if self._server is None:
            self._server = await asyncio.start_server(
                self._accept, sock=_bound(self.port), limit=_LIMIT, backlog=1_024
            )

    async def saw(self, operation: str, *, count: int = 1) -> None:
        """Return as soon as `count` requests of the operation have arrived, since the start."""
        while self.counts[operation] < count:
            await self._arrival.wait()

    def _accept(self, reader: StreamReader, writer: StreamWriter) -> None:
        task = asyncio.create_task(self._serve(reader, writer), name="fault proxy link")
        self._links[task] = writer
        self.connection_count += 1
        task.add_done_callback(self._links.pop)

    async def _serve(self, reader: StreamReader, writer: StreamWriter) -> None:
        link = _Link(reader, writer, self._upstream)
        try:
            while request := await read_request(reader, lambda: writer.write(_CONTINUE)):
                await self._answer(request, link)
        except (HungUp, OSError, EOFError):
            _reset(writer)
        finally:
            await link.aclose()

    async def _answer(self, request: HttpMessage, link: _Link) -> None:
        fault = self._next_fault(request.operation)
        kind = None if fault is None else fault.kind
        if fault is not None and kind is FaultKind.DELAY:
            await self._clock.sleep(fault.seconds)
        reply = await _reply_to(request, fault, link)
        if kind is FaultKind.LOSE_RESPONSE:
            raise HungUp
        if kind is FaultKind.TRUNCATE:
            await link.send_half(reply)
            return
        await link.send(reply)
        if request.ends_connection or reply.ends_connection:
            await link.aclose()

    def _next_fault(self, operation: str) -> Fault | None:
        fault = self.plan.fault_for(operation, self.counts[operation])
        self.counts[operation] += 1
        self._arrival.set()
        self._arrival = asyncio.Event()
        if fault is not None:
            self.faults[fault.kind] += 1
        return fault


async def _reply_to(request: HttpMessage, fault: Fault | None, link: _Link) -> HttpMessage:
    """The server's own reply, or what stands in front of it."""
    match fault:
        case Fault(kind=FaultKind.DROP_BEFORE):
            raise HungUp
        case Fault(kind=FaultKind.SERVER_ERROR, status=status):
            return server_error(status)
        case Fault(kind=FaultKind.THROTTLE):
            return throttling(request)
    return await link.forward(request)


class _Link:
    """A client's connection, and the one to the server that is its alone."""

    def __init__(
        self, reader: StreamReader, writer: StreamWriter, upstream: tuple[str, int]
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._upstream = upstream
        self._server: tuple[StreamReader, StreamWriter] | None = None

    async def forward(self, request: HttpMessage) -> HttpMessage:
        """The server's response; a client that leaves meanwhile takes the request with it."""
        reader, writer = await self._connected()
        writer.write(request.head + request.body)
        response = asyncio.create_task(read_response(reader, method=request.method))
        # The SDKs send nothing before they have their answer, so a read can only mean the end.
        left = asyncio.create_task(self._reader.read(1))
        try:
            await asyncio.wait({response, left}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            left.cancel()
            response.cancel()
            await asyncio.gather(left, response, return_exceptions=True)
        if response.cancelled():
            raise HungUp
        reply = response.result()
        if reply.ends_connection:
            await self._close_server()
        return reply

    async def _connected(self) -> tuple[StreamReader, StreamWriter]:
        if self._server is not None and self._server[0].at_eof():
            await self._close_server()
        if self._server is None:
            self._server = await asyncio.open_connection(*self._upstream, limit=_LIMIT)
        return self._server

    async def send(self, reply: HttpMessage) -> None:
        self._writer.write(reply.head + reply.body)
        await self._writer.drain()

    async def send_half(self, reply: HttpMessage) -> None:
        """Close after half of the body; after half of the head where there is hardly a body."""
        size = len(reply.body) // 2
        part = reply.head + reply.body[:size] if size else reply.head[: len(reply.head) // 2]
        self._writer.write(part)
        await self.aclose()

    async def aclose(self) -> None:
        await self._close_server()
        await _closed(self._writer)

    async def _close_server(self) -> None:
        if self._server is not None:
            [_, writer], self._server = self._server, None
            await _closed(writer)


def _bound(port: int) -> socket.socket:
    made = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    made.bind(("127.0.0.1", port))
    return made


async def _closed(writer: StreamWriter) -> None:
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()


def _reset(writer: StreamWriter) -> None:
    """Close at once with a reset: what is still to be sent or read is lost."""
    connection: socket.socket = writer.get_extra_info("socket")
    if connection.fileno() != -1:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
