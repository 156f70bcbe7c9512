"""The server: the engine's door for other processes on this machine."""

from __future__ import annotations

import asyncio
from asyncio import StreamReader, StreamWriter
from collections.abc import Coroutine
from pathlib import Path

from pump.clock import SYSTEM_CLOCK
from pump.errors import ConnectionFailed
from pump.stores import forking

from . import wire
from .dispatcher import Dispatcher
from .folder import DataFolder

# A killed process's socket may close before its lock does, so its lock is looked at again,
# less and less often for one that lives on without its connection.
_FIRST_LOOK_S = 0.005
_LAST_LOOK_S = 5.0


class Server:
    """Listens on a Unix socket; one session for each client."""

    def __init__(self, folder: DataFolder, dispatcher: Dispatcher) -> None:
        self._folder = folder
        self._dispatcher = dispatcher
        self._sessions: dict[str, StreamWriter] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._listener: asyncio.Server | None = None
        self._address: Path | None = None
        self._listener_fd = -1
        self._is_closing = False

    async def start(self) -> Path:
        """Listen, and return where."""
        address, listener = await asyncio.to_thread(self._folder.listen)
        self._address = address
        self._listener_fd = listener.fileno()
        forking.close_in_child(self._listener_fd)
        self._listener = await asyncio.start_unix_server(self._accept, sock=listener)
        return address

    async def aclose(self) -> None:
        """Hang up on everyone; unanswered requests are asked again of the next host."""
        self._is_closing = True
        if self._listener is not None:
            forking.closed(self._listener_fd)
            self._listener.close()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        await self._dispatcher.aclose()
        for writer in self._sessions.values():
            writer.close()
        if self._address is not None:
            await asyncio.to_thread(self._address.unlink, missing_ok=True)

    def _accept(self, reader: StreamReader, writer: StreamWriter) -> None:
        self._spawn(self._serve(reader, writer), "pumphouse-session")

    async def _serve(self, reader: StreamReader, writer: StreamWriter) -> None:
        owner = ""
        fd = writer.get_extra_info("socket").fileno()
        forking.close_in_child(fd)
        try:
            hello = wire.decode_request(await wire.read_frame(reader))
            if not isinstance(hello, wire.Hello) or hello.protocol != wire.PROTOCOL:
                refusal = ConnectionFailed(
                    str(self._address), f"the host speaks protocol {wire.PROTOCOL}; upgrade"
                )
                writer.write(wire.frame(wire.failure(0, refusal)))
                return
            owner = hello.owner
            await self._welcome(owner, writer)
            while True:
                request = wire.decode_request(await wire.read_frame(reader))
                self._dispatcher.submit(owner, request, lambda answer: _write(writer, answer))
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError, *wire.UNREADABLE):
            pass
        finally:
            forking.closed(fd)
            if not self._is_closing:
                self._end_session(owner, writer)

    def _end_session(self, owner: str, writer: StreamWriter) -> None:
        writer.close()
        if self._sessions.get(owner) is writer:
            del self._sessions[owner]
            self._spawn(self._mourn(owner), "pumphouse-mourner")

    async def _welcome(self, owner: str, writer: StreamWriter) -> None:
        earlier = self._sessions.get(owner)
        self._sessions[owner] = writer
        if earlier is not None:
            earlier.close()
            await self._dispatcher.leave(owner)
        _write(writer, wire.Reply(0, b""))

    async def _mourn(self, owner: str) -> None:
        """Release what a client held once it is known to be dead."""
        await self._dispatcher.leave(owner)
        wait_s = _FIRST_LOOK_S
        while owner not in self._sessions:
            if await asyncio.to_thread(self._folder.bury, owner):
                await self._dispatcher.forget(owner)
                return
            await SYSTEM_CLOCK.sleep(wait_s)
            wait_s = min(wait_s * 2, _LAST_LOOK_S)

    def _spawn(self, work: Coroutine[None, None, None], name: str) -> None:
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _write(writer: StreamWriter, answer: wire.Answer) -> None:
    if not writer.is_closing():
        writer.write(wire.frame(answer))
