"""Server: a listener for one small HTTP request a connection, which no client can hold.

It runs on the loop of its opener; in a `ServerThread` it has a loop of its own.

| a client that                     | gets                                                         |
|-----------------------------------|--------------------------------------------------------------|
| sends one request in time         | its answer, and the end of the connection                    |
| sends more than one               | the first one's answer, and the end                          |
| takes longer than 5 s to send it  | 408, and the end                                             |
| takes longer than 5 s to read     | the end                                                      |
| comes when 32 are there           | served; the one that came first is sent away                 |
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import stat
import threading
from collections.abc import Awaitable, Callable
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Final

from ..clock import SYSTEM_CLOCK, Clock, yield_to_loop
from ..errors import ConfigurationError
from ..tasks import in_thread
from .wire import MAX_HEAD_BYTES, Answer, Refused, Request, parse_head

MAX_CONNECTIONS: Final = 32
READ_S: Final = 5.0
WRITE_S: Final = 5.0
LINGER_S: Final = 1.0
"""How long, after the answer, the client's own end of the connection is waited for: what it still
sends would otherwise have the answer thrown away on its way."""
_MAX_LINGER_BYTES: Final = 64 * 1024
_ACCEPTING_TURNS: Final = 6
"""Of the loop: so long may a connection take that was accepted last, until it is ours and ended."""


Answering = Callable[[Request], Answer | Awaitable[Answer]]
"""Answers a request, or raises `Refused`; later, when other processes have to be asked first."""
Failed = Callable[[Request, Exception], None]
"""Told of an answer that raised something else: a defect, which the client is not told of."""


class Server:
    """Answers requests with what `answer` returns. What it awaits must end within seconds."""

    def __init__(self, answer: Answering, clock: Clock, failed: Failed) -> None:
        self._answer = answer
        self._clock = clock
        self._failed = failed
        self._listening: asyncio.Server | None = None
        self._socket_path: Path | None = None
        self._is_closed = False
        # In the order they came.
        self._connections: dict[asyncio.Task[None], None] = {}

    async def listen(self, field: str, host: str, port: int) -> str:
        """Listen on an address, and return its URL; `ConfigurationError` when that cannot be."""
        host = "127.0.0.1" if host == "localhost" else host
        try:
            self._listening = await asyncio.start_server(
                self._admit, host, port, limit=MAX_HEAD_BYTES
            )
        except OSError as error:
            raise ConfigurationError(field, f"{host}:{port}", _remedy(error)) from error
        return url_of(self._listening.sockets[0].getsockname())

    async def listen_on(self, made: socket.socket) -> None:
        """Listen on a socket that is bound already; the server closes it."""
        self._listening = await asyncio.start_server(self._admit, sock=made, limit=MAX_HEAD_BYTES)

    async def listen_at_path(self, field: str, path: Path) -> str:
        """Listen on a Unix socket that only this user may open."""
        made = await in_thread(bind, field, path)
        self._socket_path = path
        self._listening = await asyncio.start_unix_server(
            self._admit, sock=made, limit=MAX_HEAD_BYTES
        )
        return f"unix:{path}"

    async def aclose(self) -> None:
        """Take no more requests, and let those that are there be answered."""
        self._is_closed = True
        if self._listening is None:
            return
        listening, self._listening = self._listening, None
        try:
            if self._socket_path is not None:
                # While it still listens: afterwards another process may take the path for its own.
                await in_thread(self._socket_path.unlink, missing_ok=True)
        finally:
            listening.close()
        if self._connections:
            try:
                async with self._clock.timeout(LINGER_S):
                    await asyncio.wait(list(self._connections))
            except TimeoutError:
                pass
        await self._send_all_away()
        for _ in range(_ACCEPTING_TURNS):
            await yield_to_loop()

    async def _send_all_away(self) -> None:
        left = list(self._connections)
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left)

    def _admit(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """The oldest connection has had the most time: probes get in, however many are slow."""
        if self._is_closed:
            writer.transport.abort()
            return
        while len(self._connections) >= MAX_CONNECTIONS:
            first = next(iter(self._connections))
            del self._connections[first]
            first.cancel()
        # A task of our own: asyncio's, once cancelled, complains on its log.
        task = asyncio.get_running_loop().create_task(self._attend(reader, writer), name="caller")
        self._connections[task] = None
        task.add_done_callback(partial(self._end, writer))

    def _end(self, writer: asyncio.StreamWriter, task: asyncio.Task[None]) -> None:
        # Here, because a task that is cancelled before its first turn runs none of its own code.
        self._connections.pop(task, None)
        writer.transport.abort()

    async def _attend(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await self._converse(reader, writer)
        except (OSError, TimeoutError):
            return  # The client has gone, or does not read: no answer is possible.

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answer = await self._answer_to(reader)
        # Gone meanwhile: uvloop raises a bare RuntimeError for what is done to a closed transport.
        if answer is None or writer.is_closing():
            return
        # So that `drain` means that all of it has been taken.
        writer.transport.set_write_buffer_limits(high=0)
        writer.write(answer)
        async with self._clock.timeout(WRITE_S):
            await writer.drain()
        await self._linger(reader, writer)

    async def _answer_to(self, reader: asyncio.StreamReader) -> bytes | None:
        """The answer to what comes, None when nothing came."""
        try:
            async with self._clock.timeout(READ_S):
                request = await _read(reader)
        except TimeoutError:
            late = Refused(HTTPStatus.REQUEST_TIMEOUT, f"a request takes {READ_S:g} s at most")
            return Answer.refusing(late).as_bytes()
        except Refused as refused:
            return Answer.refusing(refused).as_bytes()
        if request is None:
            return None
        answer = await answer_safely(self._answer, request, self._failed)
        return answer.as_bytes(with_body=request.method != "HEAD")

    async def _linger(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if writer.is_closing():
            return
        if writer.can_write_eof():
            writer.write_eof()
        left = _MAX_LINGER_BYTES
        try:
            async with self._clock.timeout(LINGER_S):
                while left > 0 and (chunk := await reader.read(4096)):
                    left -= len(chunk)
        except TimeoutError:
            return


async def answer_safely(answering: Answering, request: Request, failed: Failed) -> Answer:
    """What is answered, refusals and defects too."""
    try:
        answer = answering(request)
        return answer if isinstance(answer, Answer) else await answer
    except Refused as refused:
        return Answer.refusing(refused)
    except Exception as error:  # broad: a defect here must not end what it reports on
        failed(request, error)
        status = HTTPStatus.INTERNAL_SERVER_ERROR
        return Answer.of({"error": "this failed; the app's log says why"}, status)


class ServerThread:
    """A server on an event loop of its own, in a thread of its own: it answers while the app's
    loop is busy, and costs nothing while no request comes. Serves once.
    """

    def __init__(self, answer: Answering, failed: Failed, *, name: str) -> None:
        self._server = Server(answer, SYSTEM_CLOCK, failed)
        self._name = name
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_ending = asyncio.Event()

    def start(self, made: socket.socket) -> None:
        """Listen on a socket that is bound already; the server closes it."""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._run, args=(self._loop, made), name=self._name, daemon=True
        )
        self._thread.start()

    async def aclose(self) -> None:
        """As `Server.aclose`; returns when the thread has ended."""
        loop, self._loop = self._loop, None
        if loop is None or self._thread is None:
            return
        loop.call_soon_threadsafe(self._is_ending.set)
        await in_thread(self._thread.join)

    def _run(self, loop: asyncio.AbstractEventLoop, made: socket.socket) -> None:
        try:
            loop.run_until_complete(self._serve(made))
        finally:
            loop.close()

    async def _serve(self, made: socket.socket) -> None:
        await self._server.listen_on(made)
        await self._is_ending.wait()
        await self._server.aclose()


async def _read(reader: asyncio.StreamReader) -> Request | None:
    try:
        request = parse_head(await reader.readuntil(b"\r\n\r\n"))
        if not request.body_length:
            return request
        return request.with_body(await reader.readexactly(request.body_length))
    except asyncio.LimitOverrunError:
        raise Refused(
            HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, f"a head has {MAX_HEAD_BYTES} bytes at most"
        ) from None
    except asyncio.IncompleteReadError as error:
        if not error.partial and not error.expected:
            return None
        raise Refused(HTTPStatus.BAD_REQUEST, "the request ended too early") from None


def url_of(address: tuple[str, int]) -> str:
    """The URL of an address that a socket is bound to."""
    host, port = address[:2]
    shown = f"[{host}]" if ":" in host else host
    return f"http://{shown}:{port}"


def _remedy(error: OSError) -> str:
    match error.errno:
        case errno.EADDRINUSE:
            return "another program listens there; end it, or choose another port"
        case errno.EACCES:
            return "this user may not listen there; choose a port of 1024 or more"
        case errno.EADDRNOTAVAIL:
            return "this machine has no such address; use 127.0.0.1, or 0.0.0.0 for all it has"
        case _:
            return f"cannot listen there: {error.strerror or error}; choose another address"


# A Unix socket that only one user may open, made where a dead process may have left its own.

_OWNER_ONLY = 0o600


def bind(field: str, path: Path) -> socket.socket:
    """A bound socket, not yet listening; blocks. `ConfigurationError` when the path cannot be had.

    No client can connect before it listens, so there is no moment at which others may open it.
    """
    if not hasattr(socket, "AF_UNIX"):
        raise ConfigurationError(field, str(path), "there are no Unix sockets here; use a port")
    _remove_left_behind(field, path)
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        made.setblocking(False)
        made.bind(str(path))
        os.chmod(path, _OWNER_ONLY)
    except OSError as error:
        made.close()
        raise ConfigurationError(
            field, str(path), f"{error.strerror}; name a path in a folder that exists and is yours"
        ) from error
    return made


def _remove_left_behind(field: str, path: Path) -> None:
    try:
        mode = path.stat().st_mode
    except OSError:
        return  # Binding says what is wrong, if anything is.
    if not stat.S_ISSOCK(mode):
        raise ConfigurationError(field, str(path), "that is a file; name a path that is free")
    if _is_listening(path):
        raise ConfigurationError(
            field, str(path), "another process listens there; end it, or choose another path"
        )
    path.unlink(missing_ok=True)


def _is_listening(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as caller:
        caller.settimeout(1.0)
        try:
            caller.connect(str(path))
        except OSError as error:
            return error.errno not in (errno.ECONNREFUSED, errno.ENOENT)
    return True
