"""A connection without a socket: the test decides what each chunk holds, and when it comes."""

from __future__ import annotations

import asyncio
import re
from typing import Any

from aiohttp import web

from gateways.sqs_server.http.connection import (
    Connection,
    FastLane,
    HttpLimits,
    OrdinaryReader,
    OrdinaryRequest,
    Watch,
)
from gateways.sqs_server.http.exchange import Access, Exchange
from pump.clock import yield_to_loop
from pump.testing.virtual_clock import VirtualClock

from .conftest import FakeOperations

_MANY_TURNS = 30


class BlindReader(OrdinaryReader):
    """Finds nothing ordinary, so that aiohttp serves everything."""

    def read(self, data: bytes) -> OrdinaryRequest | None:
        return None


class MemoryTransport(asyncio.Transport):
    """Keeps what is written, and closes when it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.protocol: asyncio.Protocol | None = None
        self._is_closing = False
        self._is_reading = True

    def write(self, data: Any) -> None:
        assert not self._is_closing
        self.written += bytes(data)

    def close(self) -> None:
        if not self._is_closing and self.protocol is not None:
            self._is_closing = True
            asyncio.get_running_loop().call_soon(self.protocol.connection_lost, None)

    def abort(self) -> None:
        self.close()

    def is_closing(self) -> bool:
        return self._is_closing

    def is_reading(self) -> bool:
        return self._is_reading

    def pause_reading(self) -> None:
        self._is_reading = False

    def resume_reading(self) -> None:
        self._is_reading = True


class Line:
    """One client's connection to a server of its own, with a record of who served what."""

    def __init__(self, *, has_fast_lane: bool = True, limits: HttpLimits | None = None) -> None:
        limits = limits or HttpLimits()
        self.clock = VirtualClock()
        self.operations = FakeOperations()
        self.fast: list[OrdinaryRequest] = []
        self.through_aiohttp: list[web.BaseRequest] = []
        self.exchange = Exchange(
            self.operations.call, Access(), clock=self.clock, limits=limits, version="1"
        )
        self.transport = MemoryTransport()
        reader = OrdinaryReader(limits) if has_fast_lane else BlindReader(limits)
        self.connection = Connection(
            web.Server(self._respond, handler_cancellation=True),
            Watch(self.clock, limits),
            FastLane(reader, self._reply),
            loop=asyncio.get_running_loop(),
            access_log=None,
            auto_decompress=False,
            lingering_time=0,
            max_line_size=limits.max_line_bytes,
            max_field_size=limits.max_header_bytes,
        )
        self.transport.protocol = self.connection
        self.connection.connection_made(self.transport)

    async def _respond(self, request: web.BaseRequest) -> web.StreamResponse:
        self.through_aiohttp.append(request)
        return await self.exchange.respond(request)

    async def _reply(self, request: OrdinaryRequest) -> Any:
        self.fast.append(request)
        return await self.exchange.reply(request)

    async def say(self, *chunks: bytes) -> None:
        """Each chunk as the socket would give it, with turns for everybody in between."""
        for chunk in chunks:
            if not self.transport.is_closing():
                self.connection.data_received(chunk)
            await self.settle()

    async def settle(self) -> None:
        for _ in range(_MANY_TURNS):
            await yield_to_loop()

    @property
    def lanes(self) -> tuple[int, int]:
        """How many requests went through the fast lane, and through aiohttp's."""
        return len(self.fast), len(self.through_aiohttp)

    @property
    def heard(self) -> bytes:
        """All that the server said, without what differs each time: ids, and aiohttp's dates."""
        return re.sub(rb"[0-9a-f]{8}-[0-9a-f-]{27}|Date: .*", b"", self.transport.written)

    async def hang_up(self) -> None:
        self.transport.close()
        await self.settle()
