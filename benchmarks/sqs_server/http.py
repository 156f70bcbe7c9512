"""The stand-in's HTTP/1.1: just enough of it for the SDKs, and the measurer's private paths."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from .service import Poll, Service
from .shapes import Refused, error_body

_LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*(\d+)")
_TARGET = re.compile(rb"\r\nx-amz-target:[ \t]*amazonsqs\.(\w+)")
_HEAD = (
    b"HTTP/1.1 %s\r\n"
    b"x-amzn-RequestId: 5aad2b1c-7c0d-4d3b-9d4f-3c2b1a000000\r\n"
    b"Content-Type: application/x-amz-json-1.0\r\n"
    b"%sContent-Length: %d\r\n\r\n"
)
_encode = msgspec.json.encode
_decode = msgspec.json.decode


class Control:
    """The measurer's side: latency, counts and the moments a benchmark waits for."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._started_cpu_s = time.process_time()
        self.latency_s = 0.0

    def call(self, target: str, respond: Callable[[Mapping[str, Any]], None]) -> None:
        """Answer a private path. Raises `Refused` for one that is not known."""
        path, _, query = target.partition("?")
        if path == "/hold":
            self._service.hold()
        elif path == "/polled":
            return self._service.when_polled(lambda: respond({}))
        elif path == "/release":
            self._release(float(query.removeprefix("ms=") or 0))
        elif path == "/drained":
            return self._service.when_drained(lambda: respond(self._counts()))
        elif path == "/counts":
            return respond(self._counts())
        elif path == "/flush":
            self._service.flush()
        else:
            raise Refused("UnknownPath", f"{path} is not a path of the stand-in")
        respond({})

    def _release(self, latency_ms: float) -> None:
        self.latency_s = latency_ms / 1000
        self._started_cpu_s = time.process_time()
        self._service.release()

    def _counts(self) -> Mapping[str, Any]:
        cpu_s = time.process_time() - self._started_cpu_s
        return {"calls": dict(self._service.calls), "cpu_s": cpu_s}


class Connection(asyncio.Protocol):
    """One client's connection, kept alive; one request at a time, in order."""

    def __init__(self, service: Service, control: Control) -> None:
        self._service = service
        self._control = control
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray()
        self._is_busy = False
        self._was_continued = False
        self._poll: Poll | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if self._poll is not None:
            self._service.abandon(self._poll)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        self._take_request()

    def _take_request(self) -> None:
        if self._is_busy or (end := self._buffer.find(b"\r\n\r\n")) < 0:
            return
        head = bytes(self._buffer[:end]).lower()
        length = _LENGTH.search(head)
        total = end + 4 + (int(length[1]) if length else 0)
        if len(self._buffer) < total:
            self._continue_if_asked(head)
            return
        body = bytes(self._buffer[end + 4 : total])
        del self._buffer[:total]
        self._is_busy, self._was_continued = True, False
        self._route(head, body)

    def _continue_if_asked(self, head: bytes) -> None:
        if b"\r\nexpect:" in head and not self._was_continued and self._transport:
            self._was_continued = True
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def _route(self, head: bytes, body: bytes) -> None:
        target = _TARGET.search(head)
        if target is None:
            path = head.split(b" ", 2)[1].decode()
            self._answer(lambda: self._control.call(path, self._respond))
            return
        operation = target[1].decode()
        self._service.calls[operation] += 1
        if self._control.latency_s:
            self._loop.call_later(self._control.latency_s, self._perform, operation, body)
        else:
            self._perform(operation, body)

    def _perform(self, operation: str, body: bytes) -> None:
        if self._transport is not None:
            self._answer(lambda: self._start(operation, _decode(body)))

    def _start(self, operation: str, request: Mapping[str, Any]) -> None:
        self._poll = self._service.call(operation, request, self._respond)

    def _answer(self, perform: Callable[[], None]) -> None:
        try:
            perform()
        except Refused as no:
            fault = f"{no.query_code or no.code};Sender".encode()
            self._write(b"400 Bad Request", error_body(no), b"x-amzn-query-error: %s\r\n" % fault)

    def _respond(self, reply: Mapping[str, Any]) -> None:
        self._write(b"200 OK", _encode(reply))

    def _write(self, status: bytes, body: bytes, more: bytes = b"") -> None:
        self._is_busy, self._poll = False, None
        if self._transport is None:
            return
        self._transport.write(_HEAD % (status, more, len(body)) + body)
        if self._buffer:
            self._loop.call_soon(self._take_request)
