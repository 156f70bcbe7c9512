"""A request that came through aiohttp, as the exchange wants it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from aiohttp import web

from pump.clock import Clock

from ..errors import serialization_exception
from .limits import HttpLimits
from .refusals import request_timeout, request_too_large

_CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"


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
    def is_read(self) -> bool:
        """Whether nothing of it is still to come."""
        return self._request.content.is_eof()

    async def read_body(self) -> bytes:
        """All of it.

        Raises:
            SqsError: too long, too slow, or not what the headers say.
        """
        request, limit = self._request, self._limits.max_body_bytes
        if (request.content_length or 0) > limit:
            raise request_too_large(limit)
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
