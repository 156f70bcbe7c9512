"""One connection: what it waits for, and who serves its next request.

aiohttp's own keep-alive limit does not tell an idle connection from one that sends its headers a
byte at a time, so each connection keeps its own record, and one timer looks at all of them.

    waiting --first byte--> mid-request --headers complete--> busy --answer made--> waiting

`waiting` is limited by `idle_timeout_s` and `mid-request` by `header_timeout_s`. While `busy`, the
body is limited by whoever reads it. A client that does not take its answer counts as waiting.

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
from collections.abc import Awaitable, Callable
from enum import Enum
from typing import Any, Final, NamedTuple, cast

import attrs
from aiohttp.web_protocol import RequestHandler

from .limits import HttpLimits
from .ordinary import OrdinaryReader, OrdinaryRequest
from .watch import Watch

_BUSY: Final = b"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
# What a client may send ahead of its answers before it is read no further.
_MAX_HELD_BYTES: Final = 64 * 1024
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


class Connection(RequestHandler):
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
        "_watch",
    )

    def __init__(self, manager: Any, watch: Watch, fast_lane: FastLane, **options: Any) -> None:
        super().__init__(manager, **options)
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
            self._serving = self._loop.create_task(self._serve(request), name="sqs request")
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
        if self.transport is None:
            return
        self.transport.write(reply.data)
        if self.writing_paused:
            await self._drain_helper()
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
