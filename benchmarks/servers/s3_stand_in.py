"""A stand-in for S3: one process, in memory, with as much of S3 as queues on it need.

    python -m benchmarks.servers.s3_stand_in

It listens on a free loopback port, prints its address as one line, and ends when its standard
input does. It spends far less on a request than any SDK, adds a latency when told to, and counts
requests; nothing is concluded from it but what clients cost, and how often they ask. How faithful
Pumphouse is to S3 is tested on LocalStack and moto.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import re
import socket
import sys
import time
from bisect import bisect_left, bisect_right, insort
from collections import Counter
from email.utils import formatdate
from typing import Any, NoReturn, cast
from urllib.parse import parse_qs, parse_qsl, unquote
from xml.sax.saxutils import escape, unescape

import attrs
import uvloop

_KEYS = re.compile(r"<Key>(.*?)</Key>", re.DOTALL)
_XML = '<?xml version="1.0" encoding="UTF-8"?>\n'
_NAMESPACE = 'xmlns="http://s3.amazonaws.com/doc/2006-03-01/"'
_PRIVATE = "/-/"
"""No bucket is called so."""
_REASONS = {200: "OK", 204: "No Content", 304: "Not Modified", 404: "Not Found"}


# Buckets in memory, with S3's conditions.


@attrs.frozen
class StoredObject:
    """One version of an object."""

    body: bytes
    modified_s: float
    etag: str

    @classmethod
    def of(cls, body: bytes, modified_s: float) -> StoredObject:
        """Equal bodies have equal ETags, as on S3."""
        return cls(body, modified_s, f'"{hashlib.md5(body, usedforsecurity=False).hexdigest()}"')


@attrs.frozen
class S3Error(Exception):
    """S3's answer to what it does not do: status, code, and words."""

    status: int
    code: str
    text: str


_UNMET = S3Error(412, "PreconditionFailed", "At least one of the pre-conditions did not hold")
_ABSENT = S3Error(404, "NoSuchKey", "The specified key does not exist.")


class Objects:
    """What one bucket holds, its keys in their order."""

    def __init__(self) -> None:
        self._stored: dict[str, StoredObject] = {}
        self._keys: list[str] = []

    def put(self, key: str, stored: StoredObject, *, if_match: str | None, is_new: bool) -> None:
        """Write an object. Raises `S3Error` when a condition does not hold."""
        there = self._stored.get(key)
        if is_new and there is not None:
            raise _UNMET
        if if_match is not None:
            if there is None:
                raise _ABSENT
            if there.etag != if_match:
                raise _UNMET
        if there is None:
            insort(self._keys, key)
        self._stored[key] = stored

    def get(self, key: str) -> StoredObject:
        """Read an object. Raises `S3Error` when there is none."""
        there = self._stored.get(key)
        if there is None:
            raise _ABSENT
        return there

    def remove(self, key: str) -> None:
        """Remove an object, if it is there."""
        if self._stored.pop(key, None) is not None:
            del self._keys[bisect_left(self._keys, key)]

    def list(
        self, prefix: str, after: str, max_count: int
    ) -> tuple[list[tuple[str, StoredObject]], bool]:
        """Objects in the order of their keys, and whether there are more."""
        start = max(bisect_left(self._keys, prefix), bisect_right(self._keys, after))
        chosen = [
            key for key in self._keys[start : start + max_count + 1] if key.startswith(prefix)
        ]
        page = chosen[:max_count]
        return [(key, self._stored[key]) for key in page], len(chosen) > max_count


# Operations, and how often each was asked for.


@attrs.frozen(kw_only=True)
class Request:
    """A request as it came."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes = attrs.field(repr=False)


@attrs.frozen
class Answer:
    """What goes back."""

    status: int = 200
    body: bytes = attrs.field(default=b"", repr=False)
    headers: tuple[tuple[str, str], ...] = ()
    length: int | None = None
    """The length to be named when there is no body: that of a HEAD."""


class Service:
    """S3 for any client: path-style addresses, no signatures checked, every bucket there."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        """Requests by what they are billed as: put, list, get, and delete, which is free."""
        self._buckets: dict[str, Objects] = {}

    def perform(self, request: Request) -> Answer:
        """Carry out a request at once; a refusal is an answer too."""
        path, _, query = request.target.partition("?")
        bucket, _, key = unquote(path.lstrip("/")).partition("/")
        objects = self._buckets.setdefault(bucket, Objects())
        try:
            return self._dispatch(objects, key, request, parse_qs(query, keep_blank_values=True))
        except S3Error as error:
            text = f"{_XML}<Error><Code>{error.code}</Code><Message>{error.text}</Message></Error>"
            return Answer(error.status, b"" if request.method == "HEAD" else text.encode())

    def sizes(self, bucket: str) -> dict[str, int]:
        """What is there, by key."""
        found, _ = self._buckets.setdefault(bucket, Objects()).list("", "", 10**9)
        return {key: len(there.body) for key, there in found}

    def _dispatch(
        self, objects: Objects, key: str, request: Request, query: dict[str, list[str]]
    ) -> Answer:
        match request.method:
            case "PUT" if key:
                self.counts["put"] += 1
                return self._put(objects, key, request)
            case "GET" | "HEAD" if key:
                self.counts["get"] += 1
                return _get(objects.get(key), request)
            case "GET" if "list-type" in query:
                self.counts["list"] += 1
                return _list(objects, query)
            case "DELETE" if key:
                self.counts["delete"] += 1
                objects.remove(key)
                return Answer(204)
            case "POST" if "delete" in query:
                self.counts["delete"] += 1
                return _delete(objects, request.body)
            case "HEAD" | "PUT":
                return Answer()
        _unknown(request)

    def _put(self, objects: Objects, key: str, request: Request) -> Answer:
        stored = StoredObject.of(_plain(request), time.time())
        objects.put(
            key,
            stored,
            if_match=request.headers.get("if-match"),
            is_new=request.headers.get("if-none-match") == "*",
        )
        return Answer(headers=(("ETag", stored.etag),))


def _get(there: StoredObject, request: Request) -> Answer:
    facts = (
        ("ETag", there.etag),
        ("Last-Modified", formatdate(there.modified_s, usegmt=True)),
        ("Content-Type", "binary/octet-stream"),
    )
    if request.headers.get("if-none-match") == there.etag:
        return Answer(304, headers=facts[:1])
    if request.method == "HEAD":
        return Answer(headers=facts, length=len(there.body))
    return Answer(body=there.body, headers=facts)


def _list(objects: Objects, query: dict[str, list[str]]) -> Answer:
    def asked(name: str, default: str = "") -> str:
        return query.get(name, [default])[0]

    token = asked("continuation-token")
    after = base64.b64decode(token).decode() if token else asked("start-after")
    page, has_more = objects.list(asked("prefix"), after, int(asked("max-keys", "1000")))
    contents = "".join(
        f"<Contents><Key>{escape(key)}</Key><LastModified>{_iso(there.modified_s)}</LastModified>"
        f"<ETag>{escape(there.etag)}</ETag><Size>{len(there.body)}</Size></Contents>"
        for key, there in page
    )
    next_token = base64.b64encode(page[-1][0].encode()).decode() if has_more else ""
    more = f"<NextContinuationToken>{next_token}</NextContinuationToken>" if has_more else ""
    text = (
        f"{_XML}<ListBucketResult {_NAMESPACE}><IsTruncated>{str(has_more).lower()}</IsTruncated>"
        f"<KeyCount>{len(page)}</KeyCount>{more}{contents}</ListBucketResult>"
    )
    return Answer(body=text.encode(), headers=(("Content-Type", "application/xml"),))


def _delete(objects: Objects, body: bytes) -> Answer:
    for key in _KEYS.findall(body.decode()):
        objects.remove(unescape(key))
    return Answer(body=f"{_XML}<DeleteResult {_NAMESPACE}></DeleteResult>".encode())


def _plain(request: Request) -> bytes:
    """The body without the chunks that SDKs may wrap it in to append a checksum."""
    if "aws-chunked" not in request.headers.get("content-encoding", ""):
        return request.body
    rest, parts = request.body, []
    while rest:
        line, _, rest = rest.partition(b"\r\n")
        size = int(line.partition(b";")[0], 16)
        if not size:
            break
        parts.append(rest[:size])
        rest = rest[size + 2 :]
    return b"".join(parts)


def _iso(at_s: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(at_s))


def _unknown(request: Request) -> NoReturn:
    text = f"the stand-in does not know {request.method} {request.target}"
    raise S3Error(501, "NotImplemented", escape(text))


# HTTP/1.1: just enough of it for the SDKs, and the private paths of the benchmark.


class Control:
    """The benchmark's side: latency, counts, and what is left."""

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
        self._route(Request(method=method, target=target, headers=headers, body=body))

    def _continue_if_asked(self, headers: dict[str, str]) -> None:
        if "expect" in headers and not self._was_continued and self._transport:
            self._was_continued = True
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def _route(self, request: Request) -> None:
        if request.target.startswith(_PRIVATE):
            self._write(
                Answer(body=json.dumps(self._control.call(request.target)).encode()), request
            )
        elif half_s := self._control.latency_s / 2:
            self._loop.call_later(half_s, self._perform, request, half_s)
        else:
            self._write(self._service.perform(request), request)

    def _perform(self, request: Request, half_s: float) -> None:
        # Carried out even if the client has hung up: S3 would not know.
        self._loop.call_later(half_s, self._write, self._service.perform(request), request)

    def _write(self, answer: Answer, request: Request) -> None:
        self._is_busy = False
        if self._transport is None:
            return
        length = len(answer.body) if answer.length is None else answer.length
        lines = [
            f"HTTP/1.1 {answer.status} {_REASONS.get(answer.status, 'S3Error')}",
            f"Date: {formatdate(time.time(), usegmt=True)}",
            *(f"{name}: {value}" for name, value in answer.headers),
        ]
        if answer.status not in (204, 304):
            lines.append(f"Content-Length: {length}")
        head = "\r\n".join([*lines, "x-amz-request-id: 0", "", ""]).encode("latin-1")
        self._transport.write(head + answer.body)
        if self._buffer:
            self._loop.call_soon(self._take_request)


async def serve() -> None:
    """Print the address and serve until standard input ends."""
    loop = asyncio.get_running_loop()
    listening = socket.create_server(("127.0.0.1", 0), backlog=1024)
    service = Service()
    control = Control(service)
    server = await loop.create_server(lambda: Connection(service, control), sock=listening)
    print(f"http://127.0.0.1:{listening.getsockname()[1]}", flush=True)
    await loop.run_in_executor(None, sys.stdin.read)
    server.close()


if __name__ == "__main__":
    uvloop.run(serve())
