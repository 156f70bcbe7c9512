"""The stand-in's HTTP/1.1: just enough of it for the SDKs, and the measurer's private paths."""

from __future__ import annotations

import asyncio
import json
import time
from email.utils import formatdate
from typing import Any, cast
from urllib.parse import parse_qsl

from .service import Answer, Asked, Service

_PRIVATE = "/-/"
"""No bucket is called so."""
_REASONS = {200: "OK", 204: "No Content", 304: "Not Modified", 404: "Not Found"}


class Control:
    """The measurer's side: latency, counts, and what is left."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self.latency_s = 0.0

    def call(self, target: str) -> Any:
        """Answer a private path."""
        path, _, query = target.removeprefix(_PRIVATE).partition("?")
        given = dict(parse_qsl(query))
        if path == "measure":
            self.latency_s = float(given["ms"]) / 1000
            self._service.counts.clear()
            return {}
        if path == "counts":
            return dict(self._service.counts)
        assert path == "sizes", target
        return self._service.sizes(given["bucket"])


class Connection(asyncio.Protocol):
    """One client's connection, kept alive; one request at a time, in order.

    A latency passes half before a request is carried out and half after it, as on a way there and
    a way back.
    """

    def __init__(self, service: Service, control: Control) -> None:
        self._service = service
        self._control = control
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray()
        self._is_busy = False
        self._was_continued = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are no subclasses.
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        self._take_request()

    def _take_request(self) -> None:
        if self._is_busy or (end := self._buffer.find(b"\r\n\r\n")) < 0:
            return
        first, *lines = self._buffer[:end].decode("latin-1").split("\r\n")
        method, target, _ = first.split(" ", 2)
        fields = (line.partition(":") for line in lines)
        headers = {name.lower(): value.strip() for name, _, value in fields}
        total = end + 4 + int(headers.get("content-length", "0"))
        if len(self._buffer) < total:
            self._continue_if_asked(headers)
            return
        body = bytes(self._buffer[end + 4 : total])
        del self._buffer[:total]
        self._is_busy, self._was_continued = True, False
        self._route(Asked(method=method, target=target, headers=headers, body=body))

    def _continue_if_asked(self, headers: dict[str, str]) -> None:
        if "expect" in headers and not self._was_continued and self._transport:
            self._was_continued = True
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def _route(self, asked: Asked) -> None:
        if asked.target.startswith(_PRIVATE):
            self._write(Answer(body=json.dumps(self._control.call(asked.target)).encode()), asked)
        elif half_s := self._control.latency_s / 2:
            self._loop.call_later(half_s, self._perform, asked, half_s)
        else:
            self._write(self._service.perform(asked), asked)

    def _perform(self, asked: Asked, half_s: float) -> None:
        # Carried out even if the client has hung up: S3 would not know.
        self._loop.call_later(half_s, self._write, self._service.perform(asked), asked)

    def _write(self, answer: Answer, asked: Asked) -> None:
        self._is_busy = False
        if self._transport is None:
            return
        length = len(answer.body) if answer.length is None else answer.length
        lines = [
            f"HTTP/1.1 {answer.status} {_REASONS.get(answer.status, 'Refused')}",
            f"Date: {formatdate(time.time(), usegmt=True)}",
            *(f"{name}: {value}" for name, value in answer.headers),
        ]
        if answer.status not in (204, 304):
            lines.append(f"Content-Length: {length}")
        head = "\r\n".join([*lines, "x-amz-request-id: 0", "", ""]).encode("latin-1")
        self._transport.write(head + answer.body)
        if self._buffer:
            self._loop.call_soon(self._take_request)
