"""One connection: what it waits for, and what serves its next request.

aiohttp's own keep-alive limit does not tell an idle connection from one that sends its headers a
byte at a time, so each connection keeps its own record, and one timer looks at all of them.

    waiting --first byte--> mid-request --headers complete--> busy --answer made--> waiting

`waiting` is limited by `idle_timeout_s` and `mid-request` by `header_timeout_s`. While `busy`, the
body is limited by its reader. A client that does not take its answer counts as waiting.

aiohttp serves every kind of request, and most of its cost is that it could. So an ordinary one
that comes in one piece is served without it. Its bytes never reach aiohttp, and what arrives while
it is under way is held until its answer is written, so that answers keep the order of requests.

    ours --whole ordinary request--> ours, with a task until its answer is written
    ours --ordinary head, body to come--> lent --answered, nothing behind it--> ours
    ours --anything else--> aiohttp's for good
    lent --more than was due, or an answer that is the last--> aiohttp's for good
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable
from enum import Enum
from typing import Any, Final, NamedTuple, Protocol, cast

import attrs
from aiohttp import web

from pump.clock import Clock, Timer

_BUSY: Final = b"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
# What a client may send ahead of its answers before it is read no further.
_MAX_HELD_BYTES: Final = 64 * 1024
# Of a body whose reader waits for room, a connection holds this and one chunk of the socket's.
_READ_AHEAD_BYTES: Final = 16 * 1024
_logger = logging.getLogger("gateways.sqs_server.http")


class Reply(NamedTuple):
    """What to write, and whether the connection ends with it."""

    data: bytes
    is_last: bool


@attrs.frozen
class FastLane:
    """How ordinary requests are told from others, and answered."""

    reader: OrdinaryReader
    reply: Callable[[OrdinaryRequest], Awaitable[Reply]]


class Lane(Enum):
    """Who reads what comes next."""

    OURS = "ours"
    LENT = "lent"
    AIOHTTPS = "aiohttp's"


class Connection(web.RequestHandler):
    """aiohttp's connection, with a record of what it is waiting for, and a lane of its own."""

    __slots__ = (
        "_due_bytes",
        "_fast_lane",
        "_has_been_served",
        "_has_bytes",
        "_held",
        "_is_busy",
        "_is_reading_body",
        "_is_refused",
        "_lane",
        "_serving",
        "_since_s",
        "_socket",
        "_taken",
        "_watch",
    )

    def __init__(self, manager: Any, watch: Watch, fast_lane: FastLane, **options: Any) -> None:
        super().__init__(manager, read_bufsize=_READ_AHEAD_BYTES, **options)
        self._watch = watch
        self._fast_lane = fast_lane
        self._socket: asyncio.Transport | None = None
        self._since_s = watch.clock.now_s()
        self._is_busy = False
        self._has_bytes = False
        self._has_been_served = False
        self._is_reading_body = False
        self._is_refused = False
        self._lane = Lane.OURS
        self._due_bytes = 0
        self._serving: asyncio.Task[None] | None = None
        self._held = bytearray()
        self._taken: asyncio.Event | None = None
        """While an answer of ours waits for the client to take what was written."""

    # From asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._socket = cast(asyncio.Transport, transport)
        if not self._watch.admit(self):
            self._is_refused = True
            self._socket.write(_BUSY)
            self._socket.close()
            return
        super().connection_made(transport)

    def connection_lost(self, exc: BaseException | None) -> None:
        if self._is_refused:
            return
        self._watch.forget(self)
        super().connection_lost(exc)
        if self._serving is not None:
            self._serving.cancel()

    def data_received(self, data: bytes) -> None:
        if self._is_refused:
            return
        if not data:  # aiohttp calls this itself, to parse on what it holds
            super().data_received(data)
        elif self._serving is not None:
            self._hold(data)
        elif self._lane is Lane.OURS:
            self._take(data)
        else:
            self._pass_on(data)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._taken is not None:
            self._taken.set()

    # Our lane

    def _take(self, data: bytes) -> None:
        # An answer that the client does not take must not be followed by others.
        request = None if self.writing_paused else self._fast_lane.reader.read(data)
        if request is None:
            self._lane = Lane.AIOHTTPS
            self._pass_on(data)
        elif request.size > len(data):
            self._lane, self._due_bytes = Lane.LENT, request.size
            self._pass_on(data)
        else:
            self.begin()
            self._serving = asyncio.get_running_loop().create_task(
                self._serve(request), name="sqs request"
            )
            if request.size < len(data):
                self._hold(data[request.size :])

    async def _serve(self, request: OrdinaryRequest) -> None:
        try:
            try:
                reply = await self._fast_lane.reply(request)
            finally:
                self.end()
            await self._write(reply)
        except BaseException:
            self.force_close()
            raise
        finally:
            self._serving = None
        if self._held and self.transport is not None:
            self._go_on(self.transport)

    async def _write(self, reply: Reply) -> None:
        # uvloop raises a bare RuntimeError for a write to a transport that is about to be lost.
        if self.transport is None or self.transport.is_closing():
            return
        self.transport.write(reply.data)
        if self.writing_paused:
            # Not for ever: a connection that is lost, or over its time, cancels this task.
            self._taken = asyncio.Event()
            await self._taken.wait()
            self._taken = None
        if reply.is_last:
            self.force_close()

    def _hold(self, data: bytes) -> None:
        self._held += data
        if len(self._held) >= _MAX_HELD_BYTES and self.transport is not None:
            self.transport.pause_reading()

    def _go_on(self, transport: asyncio.Transport) -> None:
        held = bytes(self._held)
        self._held.clear()
        if not transport.is_reading():
            transport.resume_reading()
        self.data_received(held)

    # aiohttp's lane

    def _pass_on(self, data: bytes) -> None:
        if self._lane is Lane.LENT:
            self._due_bytes -= len(data)
            if self._due_bytes < 0:
                self._lane = Lane.AIOHTTPS
        if not self._is_busy and not self._has_bytes:
            self._has_bytes = True
            self._since_s = self._watch.clock.now_s()
        super().data_received(data)

    def close(self) -> None:
        # It reads no more after this, and so must we not.
        self._lane = Lane.AIOHTTPS
        super().close()

    async def shutdown(self, timeout: float | None = 15.0) -> None:
        if self._serving is not None:
            _, late = await asyncio.wait([self._serving], timeout=timeout)
            for task in late:
                task.cancel()
                await asyncio.wait([task], timeout=timeout)
        await super().shutdown(timeout)

    def log_exception(self, *args: Any, **kw: Any) -> None:
        # What aiohttp calls an exception here is a client's: garbage instead of HTTP, or a
        # disconnection. Faults of ours are caught and logged before they get to this point.
        _logger.debug(*args, **kw)

    # The record

    def begin(self) -> None:
        """A request's headers are complete."""
        self._is_busy, self._has_bytes = True, False

    def end(self, *, is_last: bool = False) -> None:
        """Its answer is made."""
        self._is_busy, self._since_s = False, self._watch.clock.now_s()
        self._has_been_served = True
        if self._lane is Lane.LENT:
            is_clean = not is_last and self._due_bytes == 0
            self._lane = Lane.OURS if is_clean else Lane.AIOHTTPS

    def note_reading(self, is_reading: bool) -> None:
        """A request waits for its body, or no longer does."""
        self._is_reading_body, self._since_s = is_reading, self._watch.clock.now_s()

    def waits_since(self) -> tuple[bool, float] | None:
        """Sorts half-open connections before those that are idle between two requests."""
        if self._is_busy and not self._is_reading_body:
            return None
        is_between = self._has_been_served and not self._has_bytes and not self._is_busy
        return is_between, self._since_s

    def is_overdue(self, now_s: float, limits: HttpLimits) -> bool:
        """Whether it has kept us waiting for too long."""
        limit_s = limits.header_timeout_s if self._has_bytes else limits.idle_timeout_s
        return not self._is_busy and now_s - self._since_s >= limit_s

    def abort(self) -> None:
        """Close it without regard to what it has not taken yet."""
        if self._socket is not None:
            self._socket.abort()


# Requests as SDKs send them nearly always, read by hand; anything else is aiohttp's to judge.
#
# A reader that refuses nothing can be short, and it can be strict: what it does not know word for
# word it does not touch. It answers None for whatever has a second meaning somewhere (a name that
# comes twice, a folded or padded line, a coding of the body, a byte that is not plain text), and
# the full parser then serves or refuses it. So the two never disagree about where a request ends.

# Beyond these, the full parser looks whether a limit is exceeded.
_MAX_HEAD_BYTES: Final = 16 * 1024
_MAX_FIELDS: Final = 64
_MAX_DIGITS: Final = 9
_PRINTABLE: Final = bytes(range(0x20, 0x7F))
_LINE: Final = re.compile(
    r"POST (/[\w\-.~%!$&'()*+,;=:@/]*)(?:\?([\w\-.~%!$&'()*+,;=:@/?]*))? HTTP/1\.1", re.ASCII
)
_NAME: Final = re.compile(r"[\w!#$%&'*+\-.^`|~]+", re.ASCII)
# They say something about the connection or the form of the body; of them all, only the
# `Connection: keep-alive` that some clients send for good measure is understood here.
_UNUSUAL: Final = frozenset(
    {
        "content-encoding",
        "expect",
        "http2-settings",
        "keep-alive",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
_USUAL: Final = (
    "accept",
    "accept-encoding",
    "amz-sdk-invocation-id",
    "amz-sdk-request",
    "authorization",
    "connection",
    "content-length",
    "content-type",
    "host",
    "user-agent",
    "x-amz-content-sha256",
    "x-amz-date",
    "x-amz-security-token",
    "x-amz-target",
    "x-amz-user-agent",
    "x-amzn-query-mode",
    "x-amzn-trace-id",
)


class _Names(dict[str, str]):
    """Lower-case names; a KeyError for what is no name, or not one for this reader.

    Only the usual ones are kept, so that no client can make it grow.
    """

    def __missing__(self, name: str) -> str:
        lower = name.lower()
        if lower in _UNUSUAL or not _NAME.fullmatch(name):
            raise KeyError(name)
        return lower


_NAMES: Final = _Names({name: name for name in _USUAL} | {name.title(): name for name in _USUAL})


class OrdinaryRequest(NamedTuple):
    """A POST with a body of known length; of the body, what has come so far."""

    path: str
    query: str
    headers: dict[str, str]
    """By lower-case name, each of them once."""
    body: bytes
    size: int
    """Of head and body together, once all of it is there."""
    method: str = "POST"

    def __repr__(self) -> str:
        # Neither a body nor a signature belongs in a log.
        return f"OrdinaryRequest({self.path!r}, {self.size} bytes)"


class OrdinaryReader:
    """Reads the first request of a chunk, within limits that are at least the server's."""

    def __init__(self, limits: HttpLimits) -> None:
        self._max_body_bytes = limits.max_body_bytes
        # No line of a head that is shorter than its shortest limit can be over one.
        self._max_head_bytes = min(_MAX_HEAD_BYTES, limits.max_line_bytes, limits.max_header_bytes)

    def read(self, data: bytes) -> OrdinaryRequest | None:
        """The request that `data` begins with, None when it is anything out of the ordinary."""
        end = data.find(b"\r\n\r\n", 0, self._max_head_bytes)
        if end < 0 or not data.startswith(b"POST /"):
            return None
        head = data[: end + 2]
        # Read as Latin-1, which cannot fail; what is not ASCII is not printable here either, and
        # nor is a line end that is not one of HTTP's.
        first, *lines, _ = head.decode("latin-1").split("\r\n")
        if len(head.translate(None, _PRINTABLE)) != 2 * (len(lines) + 1):
            return None
        # Padding is the full parser's to strip: both need not strip the same.
        if b" \r\n" in head or b":  " in head:
            return None
        target = _LINE.fullmatch(first)
        headers = _read_fields(lines)
        if target is None or headers is None:
            return None
        length = _length_of(headers)
        if length is None or length > self._max_body_bytes:
            return None
        path, query = target.groups("")
        start = end + 4
        return OrdinaryRequest(path, query, headers, data[start : start + length], start + length)


def _read_fields(lines: list[str]) -> dict[str, str] | None:
    headers: dict[str, str] = {}
    try:
        for line in lines:
            name, value = line.split(": ", 1)
            headers[_NAMES[name]] = value
    except (KeyError, ValueError):
        return None
    return headers if len(headers) == len(lines) <= _MAX_FIELDS else None


def _length_of(headers: dict[str, str]) -> int | None:
    """What Content-Length says, None unless everything about the framing is as usual."""
    length = headers.get("content-length", "")
    if not length.isdecimal() or len(length) > _MAX_DIGITS or "host" not in headers:
        return None
    if headers.get("connection", "keep-alive").lower() != "keep-alive":
        return None
    return int(length)


# All connections: counted, and closed when a client is too slow.


class Watched(Protocol):
    """A connection, as far as the watch is concerned."""

    def is_overdue(self, now_s: float, limits: HttpLimits) -> bool:
        """Whether it has kept us waiting for too long."""

    def waits_since(self) -> tuple[bool, float] | None:
        """Whether it has been served before, and since when it has nothing for us to do; None
        while a request of it is worked on.
        """

    def abort(self) -> None:
        """Close it without regard to what it has not taken yet."""


class Watch:
    """Knows every open connection, and closes those that are over a limit of time."""

    def __init__(self, clock: Clock, limits: HttpLimits) -> None:
        self.clock = clock
        self._limits = limits
        self._connections: set[Watched] = set()
        self._timer: Timer | None = None

    def start(self) -> None:
        """Look at the connections from time to time, until `stop`."""
        self._timer = self.clock.call_later(self._limits.header_timeout_s / 2, self._look)

    def stop(self) -> None:
        """Look no more; connections stay as they are."""
        if self._timer is not None:
            self._timer.cancel()

    def admit(self, connection: Watched) -> bool:
        """Take a connection into account; where there are too many, another one has to go.

        First those that are half-open, the oldest of them, and then those that are idle. Only
        when requests of all of them are worked on, the new one is not admitted.
        """
        if len(self._connections) >= self._limits.max_connections and not self._evict():
            return False
        self._connections.add(connection)
        return True

    def _evict(self) -> bool:
        waiting = [(since, each) for each in self._connections if (since := each.waits_since())]
        if not waiting:
            return False
        _, oldest = min(waiting, key=lambda pair: pair[0])
        self._connections.discard(oldest)
        oldest.abort()
        return True

    def forget(self, connection: Watched) -> None:
        """It is closed."""
        self._connections.discard(connection)

    def _look(self) -> None:
        now_s = self.clock.now_s()
        for connection in list(self._connections):
            if connection.is_overdue(now_s, self._limits):
                connection.abort()
        self.start()


# What one client may cost the server before it is turned away.

_MIB: Final = 1024 * 1024


@attrs.frozen(kw_only=True)
class HttpLimits:
    """Sizes, times and numbers. Every one of them is there because a client could go without."""

    max_body_bytes: int = 4 * _MIB
    """AWS takes 1 MiB of message; JSON's escapes and form encoding make up to 3 of it. What is
    longer than this is refused by its Content-Length, or while it is read, and never kept."""
    max_buffered_bytes: int = 64 * _MIB
    """Of all bodies together that are still coming in: what comes on top of that waits."""
    room_timeout_s: float = 1.0
    """How long it waits for another to be done, before the oldest of them is refused."""
    max_line_bytes: int = 64 * 1024
    """Of the request line: the query protocol may put a message into it."""
    max_header_bytes: int = 16 * 1024
    """Of one header: session tokens are long."""
    max_connections: int = 1000
    """Long polls hold one each. Below the 1,024 files that a process may commonly open. One more
    takes the place of the oldest that is half-open or idle."""
    header_timeout_s: float = 10.0
    """From the first byte of a request to the end of its headers."""
    body_timeout_s: float = 30.0
    """From the end of the headers to the end of the body."""
    idle_timeout_s: float = 75.0
    """Between two requests, and for a client to take its answer."""
    grace_s: float = 5.0
    """For requests under way when the server is closed."""
