"""A request that came through aiohttp, as the exchange wants it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Final

from aiohttp import web

from pump.clock import Clock

from ..errors import serialization_exception
from .limits import HttpLimits
from .refusals import request_timeout, request_too_large

_CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"


class BodyBudget:
    """How many bytes of bodies may be on their way in at once; first come, first served."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._free = max_bytes
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    @asynccontextmanager
    async def reserve(self, size: int) -> AsyncIterator[None]:
        """Hold so many bytes, waiting for them; the largest body fits when it is alone."""
        size = min(size, self._max_bytes)
        await self._take(size)
        try:
            yield
        finally:
            self._give(size)

    async def _take(self, size: int) -> None:
        if not self._waiting and size <= self._free:
            self._free -= size
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        entry = (size, turn)
        self._waiting.append(entry)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                self._waiting.remove(entry)
                self._give(0)
            else:
                self._give(size)
            raise

    def _give(self, size: int) -> None:
        self._free += size
        while self._waiting and self._waiting[0][0] <= self._free:
            next_size, turn = self._waiting.popleft()
            if not turn.cancelled():
                self._free -= next_size
                turn.set_result(None)


class WebRequest:
    """Any request; its body is read on demand, within the limits."""

    def __init__(self, request: web.BaseRequest, clock: Clock, limits: HttpLimits) -> None:
        self._request = request
        self._clock = clock
        self._limits = limits
        self.path, self.query = _target_of(request)

    @property
    def method(self) -> str:
        """As it came."""
        return self._request.method

    @property
    def headers(self) -> Mapping[str, str]:
        """By name in any case."""
        return self._request.headers

    @property
    def connection(self) -> object:
        """Over which it came."""
        return self._request.protocol

    @property
    def max_bytes(self) -> int:
        """The most that its body may come to."""
        length = self._request.content_length
        return self._limits.max_body_bytes if length is None else length

    def check_length(self) -> None:
        """Raise `SqsError` when it says itself that it is too long."""
        if (self._request.content_length or 0) > self._limits.max_body_bytes:
            raise request_too_large(self._limits.max_body_bytes)

    @property
    def is_read(self) -> bool:
        """Whether nothing of it is still to come."""
        return self._request.content.is_eof()

    async def read_body(self) -> bytes:
        """All of it.

        Raises:
            SqsError: too long, too slow, or not what the headers say.
        """
        request, limit = self._request, self._limits.max_body_bytes
        self.check_length()
        if self.is_read:  # as nearly always: it came together with the headers
            body = request.content.read_nowait()
            if len(body) > limit:
                raise request_too_large(limit)
            return body
        if self.headers.get("expect", "").lower() == "100-continue":
            await request.writer.write(_CONTINUE)
            request.writer.output_size = 0  # so that aiohttp does not take it for the answer
        try:
            async with self._clock.timeout(self._limits.body_timeout_s):
                return await self._read_slowly()
        except TimeoutError:
            raise request_timeout() from None
        except web.RequestPayloadError:
            raise serialization_exception("The body is not what its headers say.") from None

    async def _read_slowly(self) -> bytes:
        body = bytearray()
        while chunk := await self._request.content.readany():
            body += chunk
            if len(body) > self._limits.max_body_bytes:
                raise request_too_large(self._limits.max_body_bytes)
        return bytes(body)


def _target_of(request: web.BaseRequest) -> tuple[str, str]:
    """Path and query string as they were sent: a signature covers them undecoded."""
    target = request.raw_path
    if target.startswith("/"):
        path, _, query = target.partition("?")
        return path, query
    return request.rel_url.raw_path, request.rel_url.raw_query_string
