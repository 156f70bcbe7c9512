"""A transport that no message stops: headers reach the SDK in a form that it can read."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from aiormq.connection import TCPTransportFactory, TLSTransportFactory, TransportFactory
from pamqp.constants import FRAME_HEADER
from yarl import URL

from .legible import legible


class CarefulTransport(TransportFactory):
    """Has the SDK read through a `_CarefulReader`."""

    def __init__(self, *, is_tls: bool) -> None:
        self._transport = TLSTransportFactory() if is_tls else TCPTransportFactory()

    async def create(
        self, url: URL, **options: Any
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await self._transport.create(url, **options)
        return cast(asyncio.StreamReader, _CarefulReader(reader)), writer


class _CarefulReader:
    """A reader as far as the SDK uses it, which reads each frame in three parts: its type, where
    it belongs and how long it is, its content with an octet that ends it.
    """

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self.at_eof = reader.at_eof
        self.read = reader.read
        self._reader = reader
        self._part = 0
        self._type = 0

    async def readexactly(self, size: int) -> bytes:
        octets = await self._reader.readexactly(size)
        if self._part == 0:
            self._type = octets[0]
        elif self._part == 2 and self._type == FRAME_HEADER:
            octets = legible(octets[:-1]) + octets[-1:]
        self._part = (self._part + 1) % 3
        return octets
