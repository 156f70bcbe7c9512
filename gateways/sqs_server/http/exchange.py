"""One request and its answer: read, verified, understood, handed on, and put into words again."""

from __future__ import annotations

import asyncio
import ipaddress
import re
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from email.utils import formatdate
from functools import lru_cache
from http import HTTPStatus
from itertools import count
from typing import Any, Final
from urllib.parse import urlsplit
from uuid import uuid4

import attrs
import msgspec
from aiohttp import HttpVersion11, web
from aiohttp.abc import AbstractStreamWriter

from pump.clock import Clock
from pump.errors import StorageFailed
from pump.observability import vocabulary
from pump.observability.log import get_logger

from ..errors import (
    SqsError,
    access_denied,
    internal_failure,
    serialization_exception,
    service_unavailable,
)
from ..protocol import Call, HttpAnswer, parse, render, render_error
from .connection import Connection, HttpLimits, OrdinaryRequest, Reply
from .sigv4 import SignedRequest, check_claim, request_timeout, request_too_large, verify

# Which requests a server without signatures takes: those no web page can have made.
#
# A loopback address keeps other machines out, not the browser of this one. A page of any site may
# post a form to `http://127.0.0.1:4100`, load an image from there, or bind its own name to
# 127.0.0.1 (DNS rebinding) and then read the answers too. Browsers betray the first two by
# `Origin`, `Referer` and `Sec-Fetch-Site`, and the third by the page's name in `Host`. SDKs send
# none of the former, and as Host what they were given as endpoint: an address or a name that only
# means something here.
#
# An older browser that is told to keep quiet loads an image with nothing but a Host. So a request
# that is no POST changes nothing unless it has AWS's `Authorization` header, which every SDK sends
# and no page can add to a request of another site. `Basic` is another matter: some browsers make it
# of the name in `http://name@127.0.0.1:9324/`.

# Names that mean this machine wherever they are resolved. Not `local`, which any machine of the
# network may answer to, and not `amazonaws.com`, under which pages of others are served.
_LOCAL_SUFFIXES: Final = (".localhost", ".test", ".localhost.localstack.cloud")
# By these a container reaches the machine that it runs on.
_LOCAL_NAMES: Final = frozenset(
    {"host.docker.internal", "gateway.docker.internal", "host.containers.internal"}
)
_READING: Final = frozenset(
    {
        "GetQueueAttributes",
        "GetQueueUrl",
        "ListDeadLetterSourceQueues",
        "ListMessageMoveTasks",
        "ListQueueTags",
        "ListQueues",
    }
)
_SITE: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^/?#]*").match
_ORIGIN: Final = re.compile(
    r"https?://(\[(?P<address>[0-9a-fA-F:.]+)\]|(?P<name>[A-Za-z0-9._-]+))(:[0-9]{1,5})?"
).fullmatch
_OWN_SITES: Final = frozenset({"same-origin", "same-site", "none"})


def refusal_of(headers: Mapping[str, str], allowed_hosts: frozenset[str]) -> SqsError | None:
    """Why the request may be a web page's, None when it cannot be."""
    origin = headers.get("origin")
    if origin is not None and not is_own_origin(origin, allowed_hosts):
        return access_denied("Requests from web pages of other sites are not served.")
    referer = headers.get("referer")
    if referer is not None and not _is_own_page(referer, allowed_hosts):
        return access_denied("Requests from web pages of other sites are not served.")
    if headers.get("sec-fetch-site", "none") not in _OWN_SITES:
        return access_denied("Requests from web pages of other sites are not served.")
    host = headers.get("host", "")
    if host and not is_local_host(host, allowed_hosts):
        return access_denied(
            "This Host is not a name of this machine. Start the server with --allow-host and the "
            "name, or with --verify so that requests have to be signed."
        )
    return None


def refusal_of_change(method: str, headers: Mapping[str, str], operation: str) -> SqsError | None:
    """Why a request that is understood may not be obeyed, None when it may."""
    is_signed = headers.get("authorization", "").startswith("AWS4-")
    if method == "POST" or is_signed or operation in _READING:
        return None
    return access_denied(
        f"{operation} by {method} without an Authorization header of AWS's could come from a web "
        "page. Send it as a POST, or sign it in that header."
    )


def _is_own_page(referer: str, allowed_hosts: frozenset[str]) -> bool:
    site = _SITE(referer)
    return site is not None and is_own_origin(site[0], allowed_hosts)


def is_own_origin(origin: str, allowed_hosts: frozenset[str]) -> bool:
    """Whether a page was served by this machine itself.

    Stricter than for `Host`, which only rebinding has to be kept from: any address and any name
    may serve an attacker's page.
    """
    # The whole of it, so that nothing hides in front of an `@` or behind a backslash; and a
    # sandboxed page says `null`.
    found = _ORIGIN(origin)
    if found is None:
        return False
    name = (found["address"] or found["name"]).lower()
    if name == "localhost" or name.endswith(".localhost") or name in allowed_hosts:
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


@lru_cache(maxsize=1024)
def is_local_host(authority: str, allowed_hosts: frozenset[str]) -> bool:
    """Whether a `host[:port]` is an address, or a name that no other host can own."""
    try:
        name = urlsplit(f"//{authority}").hostname
    except ValueError:
        return False
    if name is None:
        return False
    name = name.rstrip(".")
    return name in allowed_hosts or _is_address(name) or _is_local_name(name)


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _is_local_name(name: str) -> bool:
    # A name without a dot is a container's or a machine's on this network.
    is_plain = name.replace("-", "").replace("_", "").isalnum()
    return is_plain or name in _LOCAL_NAMES or name.endswith(_LOCAL_SUFFIXES)


# Names for requests.


class RequestIds:
    """Gives each request an id of a UUID's form that no other request has.

    Asking the machine for randomness costs a system call each time, so a server asks once and
    counts from there. The ids are to be told apart, not to be kept secret.
    """

    def __init__(self) -> None:
        # The first 80 of 128 bits, with the version and the variant.
        self._prefix = str(uuid4())[:24]
        self._numbers = count(1)

    def take(self) -> str:
        """The next one."""
        return f"{self._prefix}{next(self._numbers):012x}"


# The answer to an ordinary request, written in one piece.
#
# aiohttp's `Response` serves every kind of request: HTTP/1.0, HEAD, chunks, compression, cookies.
# Nearly all of ours are HTTP/1.1 with a body that is known, and for them that is about a fifth of
# what this layer costs. `response_to` uses it where it is needed.

SERVER: Final = "pumphouse"


def response_to(
    request: web.BaseRequest, answer: HttpAnswer, *, is_last: bool, time_s: float
) -> web.StreamResponse:
    """What aiohttp shall send; the connection is closed after the last."""
    if request.version == HttpVersion11 and request.method != "HEAD":
        return PlainResponse(answer, is_last=is_last, time_s=time_s)
    headers = answer.headers | {"Server": SERVER}
    response = web.Response(status=answer.status, headers=headers, body=answer.body)
    if is_last:
        response.force_close()
    return response


class PlainResponse(web.StreamResponse):
    """Status, headers and body in one write to the transport."""

    def __init__(self, answer: HttpAnswer, *, is_last: bool, time_s: float) -> None:
        super().__init__(status=answer.status)
        self._answer = answer
        self._is_last = is_last
        self._time_s = time_s

    @property
    def keep_alive(self) -> bool | None:
        return not self._is_last

    async def prepare(self, request: web.BaseRequest) -> AbstractStreamWriter | None:
        # A client that asks to close is obeyed even where we would go on.
        self._is_last = self._is_last or not request.keep_alive
        transport = request.transport
        if transport is None or transport.is_closing():
            raise ConnectionResetError("the client has gone")
        transport.write(write_answer(self._answer, is_last=self._is_last, time_s=self._time_s))
        await request.writer.drain()
        return request.writer

    async def write_eof(self, data: bytes = b"") -> None:
        # All of it was written by `prepare`.
        return


def write_answer(answer: HttpAnswer, *, is_last: bool, time_s: float) -> bytes:
    """Status, headers and body, as they go over the wire."""
    status, headers, body = answer
    fields = "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
    ending = "Connection: close\r\n\r\n" if is_last else "\r\n"
    length = f"Content-Length: {len(body)}\r\n"
    head = f"{_status_line(status)}{fields}{length}{_signature(int(time_s))}{ending}"
    return head.encode() + body


@lru_cache(maxsize=64)
def _status_line(status: int) -> str:
    return f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\n"


@lru_cache(maxsize=2)
def _signature(time_s: int) -> str:
    return f"Date: {formatdate(time_s, usegmt=True)}\r\nServer: {SERVER}\r\n"


# A request that came through aiohttp, as the exchange wants it.

_CHUNK_BYTES: Final = 16 * 1024
_CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"


class BodyBudget:
    """How many bytes of bodies may be held at once while they come in.

    A body counts for what has come of it, so that one which is announced and never sent keeps no
    other out. What does not fit waits; where nothing gets free within the patience, the oldest body
    is refused. A body that is alone fits.
    """

    def __init__(self, max_bytes: int, patience_s: float, clock: Clock) -> None:
        self._max_bytes = max_bytes
        self._patience_s = patience_s
        self._clock = clock
        self._bodies: dict[IncomingBody, None] = {}
        """Oldest first."""
        self._freed = asyncio.Event()
        self._freed_at_s = clock.now_s()

    @asynccontextmanager
    async def body(self) -> AsyncIterator[IncomingBody]:
        """A body that comes in. Raises `TimeoutError` when it is refused for the sake of others."""
        async with asyncio.timeout(None) as limit:
            body = IncomingBody(self, limit)
            self._bodies[body] = None
            try:
                yield body
            finally:
                del self._bodies[body]
                self._note_freed()

    async def make_room(self, body: IncomingBody, size: int) -> None:
        """Return when so many bytes more of a body fit."""
        since_s = self._clock.now_s()
        while others := [each for each in self._bodies if each is not body and each.size]:
            if sum(each.size for each in others) + body.size + size <= self._max_bytes:
                return
            now_s = self._clock.now_s()
            wait_s = max(since_s, self._freed_at_s) + self._patience_s - now_s
            if wait_s <= 0:
                others[0].refuse()
                self._freed_at_s = now_s
                continue
            with suppress(TimeoutError):
                async with self._clock.timeout(wait_s):
                    await self._freed.wait()

    def _note_freed(self) -> None:
        self._freed_at_s = self._clock.now_s()
        freed, self._freed = self._freed, asyncio.Event()
        freed.set()


class IncomingBody:
    """One body, as far as it has come."""

    def __init__(self, budget: BodyBudget, limit: asyncio.Timeout) -> None:
        self._budget = budget
        self._limit = limit
        self.size = 0

    async def grow(self, size: int) -> None:
        """Hold so many bytes more, as soon as they fit."""
        await self._budget.make_room(self, size)
        self.size += size

    def refuse(self) -> None:
        """End its reading: others need the room."""
        self.size = 0
        self._limit.reschedule(-1)


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

    def check_length(self) -> None:
        """Raise `SqsError` when it says itself that it is too long."""
        if (self._request.content_length or 0) > self._limits.max_body_bytes:
            raise request_too_large(self._limits.max_body_bytes)

    @property
    def is_read(self) -> bool:
        """Whether nothing of it is still to come."""
        return self._request.content.is_eof()

    async def read_body(self, incoming: IncomingBody | None = None) -> bytes:
        """All of it; what is still to come counts as `incoming`.

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
                return await self._read_slowly(incoming)
        except TimeoutError:
            raise request_timeout() from None
        except web.RequestPayloadError:
            raise serialization_exception("The body is not what its headers say.") from None

    async def _read_slowly(self, incoming: IncomingBody | None) -> bytes:
        body = bytearray()
        # In small pieces: what waits for room has been taken from the connection.
        while chunk := await self._request.content.read(_CHUNK_BYTES):
            if incoming is not None:
                await incoming.grow(len(chunk))
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


Request = OrdinaryRequest | WebRequest
Handler = Callable[[Call], Awaitable[Mapping[str, Any]]]

HEALTH_PATH: Final = "/_health"
_log = get_logger("gateways.sqs_server")


@attrs.frozen(kw_only=True)
class Access:
    """Which clients may ask. With secrets, those that sign with one; else those on this machine."""

    secrets: Mapping[str, str] = attrs.field(factory=dict, repr=False)
    allowed_hosts: frozenset[str] = frozenset()


class Exchange:
    """Answers requests of both lanes, each in a task that is cancelled when the client goes."""

    def __init__(
        self, handler: Handler, access: Access, *, clock: Clock, limits: HttpLimits, version: str
    ) -> None:
        self._handler = handler
        self._access = access
        self._clock = clock
        self._limits = limits
        self._version = version
        self._request_ids = RequestIds()
        self._bodies = BodyBudget(limits.max_buffered_bytes, limits.room_timeout_s, clock)
        self._is_closing = False
        self._waiting: set[asyncio.Task[Any]] = set()
        self._under_way = 0
        self._at_rest = asyncio.Event()

    async def respond(self, request: web.BaseRequest) -> web.StreamResponse:
        """The answer to one request of aiohttp's; raises only what ends the connection."""
        connection = request.protocol
        assert isinstance(connection, Connection)
        connection.begin()
        is_last = True
        try:
            answer = await self._answer(WebRequest(request, self._clock, self._limits))
            is_last = self._is_closing or not request.content.is_eof()
        finally:
            connection.end(is_last=is_last)
        return response_to(request, answer, is_last=is_last, time_s=self._clock.time_s())

    async def reply(self, request: OrdinaryRequest) -> Reply:
        """The answer to one request of the fast lane; raises only what ends the connection."""
        answer = await self._answer(request)
        is_last = self._is_closing
        return Reply(write_answer(answer, is_last=is_last, time_s=self._clock.time_s()), is_last)

    async def _answer(self, request: Request) -> HttpAnswer:
        self._under_way += 1
        try:
            return await self._serve_or_refuse(request, self._request_ids.take())
        finally:
            self._under_way -= 1
            if self._is_closing and not self._under_way:
                self._at_rest.set()

    async def _serve_or_refuse(self, request: Request, request_id: str) -> HttpAnswer:
        try:
            return await self._serve(request, request_id)
        except SqsError as error:
            refusal = error
        except StorageFailed as error:
            _log.warning(vocabulary.REQUEST_UNSTORED, error=str(error))
            refusal = service_unavailable(
                f"The server cannot write to its disk, so nothing was done: {error.detail}"
            )
        except Exception as error:  # broad: a fault in one request must not end the others
            # As text: a renderer that is given the error may print local variables, and bodies
            # are among them.
            trace = "".join(traceback.format_exception(error))
            _log.error(vocabulary.REQUEST_FAILED, request_id=request_id, traceback=trace)
            refusal = internal_failure()
        return render_error(refusal, request.headers, request_id)

    async def _serve(self, request: Request, request_id: str) -> HttpAnswer:
        if not self._access.secrets:
            refusal = refusal_of(request.headers, self._access.allowed_hosts)
            if refusal is not None:
                raise refusal
        if request.path == HEALTH_PATH:
            return self._health()
        if self._is_closing:
            raise service_unavailable("The server is closing.")
        call = await self._understand(request)
        return render(call, await self._call(call), request_id)

    async def _understand(self, request: Request) -> Call:
        if isinstance(request, OrdinaryRequest):
            return self._parse(request, request.body)
        if request.is_read:
            return self._parse(request, await request.read_body())
        # What the headers alone condemn is refused before any of its body is kept.
        if self._access.secrets:
            headers = list(request.headers.items())
            check_claim(headers, request.query, self._access.secrets)
        request.check_length()
        connection = request.connection
        assert isinstance(connection, Connection)
        connection.note_reading(True)
        try:
            async with self._bodies.body() as incoming:
                return self._parse(request, await request.read_body(incoming))
        except TimeoutError:
            raise service_unavailable("Too many long requests are coming in.") from None
        finally:
            connection.note_reading(False)

    def _parse(self, request: Request, body: bytes) -> Call:
        if self._access.secrets:
            self._verify(request, body)
        call = parse(request.path, request.query, request.headers, body)
        if not self._access.secrets:
            refusal = refusal_of_change(request.method, request.headers, call.operation)
            if refusal is not None:
                raise refusal
        return call

    def _health(self) -> HttpAnswer:
        status = "closing" if self._is_closing else "ok"
        body = msgspec.json.encode({"status": status, "version": self._version})
        headers = {"Content-Type": "application/json"}
        return HttpAnswer(503 if self._is_closing else 200, headers, body)

    def _verify(self, request: Request, body: bytes) -> None:
        signed = SignedRequest(
            method=request.method,
            path=request.path,
            query=request.query,
            headers=list(request.headers.items()),
            body=body,
        )
        verify(signed, self._access.secrets, self._clock.time_s())

    async def _call(self, call: Call) -> Mapping[str, Any]:
        if call.operation != "ReceiveMessage":
            return await self._handler(call)
        task = asyncio.current_task()
        assert task is not None
        self._waiting.add(task)
        try:
            return await self._handler(call)
        except asyncio.CancelledError:
            # Ours, and ours only: `drain` cut the wait short, and a poll that is over because
            # nothing came in time has an answer. A client that went away is past answering.
            if task in self._waiting or task.uncancel() > 0:
                raise
            return {}
        finally:
            self._waiting.discard(task)

    async def drain(self) -> bool:
        """Take no more requests, end the long polls, and let the others end in the grace.

        False when some did not.
        """
        self._is_closing = True
        waiting, self._waiting = self._waiting, set()
        for task in waiting:
            task.cancel()
        if not self._under_way:
            return True
        try:
            async with self._clock.timeout(self._limits.grace_s):
                await self._at_rest.wait()
        except TimeoutError:
            return False
        return True
