"""The server: listens for the other processes of this machine, on the host's engine."""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import os
import socket
import stat
import tempfile
import termios
from array import array
from asyncio import StreamReader, StreamWriter
from pathlib import Path

from pump.clock import SYSTEM_CLOCK, yield_to_loop
from pump.errors import ConnectionFailed, StorageFailed
from pump.stores import file_lock
from pump.stores.file_lock import FileLock
from pump.tasks import BackgroundTasks, in_thread

from .._engine.engine import QueueEngine
from . import wire
from .dispatcher import RequestDispatcher

# A killed process's socket may close before its lock does, so its lock is looked at again,
# less and less often for one that lives on without its connection.
_FIRST_LOOK_S = 0.005
_LAST_LOOK_S = 5.0
# From the socket to the reader, to the session's task, to the request's own: with some to spare.
_QUIET_TURNS = 8
# A client that sends without a pause does not keep its leases by that.
_HEARING_S = 1.0


class LocalServer:
    """Listens on a Unix socket; one session for each client."""

    def __init__(
        self, folder: DataFolder, dispatcher: RequestDispatcher, engine: QueueEngine
    ) -> None:
        self._folder = folder
        self._dispatcher = dispatcher
        self._engine = engine
        self._sessions: dict[str, StreamWriter] = {}
        self._tasks = BackgroundTasks("pumphouse", is_awaited=False)
        self._listener: asyncio.Server | None = None
        self._address: Path | None = None
        self._listener_fd = -1
        self._is_closing = False
        self._hearing: set[str] = set()
        """Owners whose leases are over, as far as the host has read."""
        self._heard: set[str] = set()

    async def start(self) -> Path:
        """Listen, and return where."""
        self._engine.spares = self._is_unheard
        self._engine.until_heard = self._until_heard
        address, listener = await in_thread(self._folder.listen)
        self._address = address
        self._listener_fd = listener.fileno()
        file_lock.close_in_child(self._listener_fd)
        self._listener = await asyncio.start_unix_server(self._accept, sock=listener)
        return address

    async def aclose(self) -> None:
        """Close every connection; unanswered requests are asked again of the next host."""
        self._is_closing = True
        self._engine.spares = None
        self._engine.until_heard = None
        if self._listener is not None:
            file_lock.closed(self._listener_fd)
            self._listener.close()
        await self._tasks.abort()
        await self._dispatcher.aclose()
        for writer in self._sessions.values():
            writer.close()
        if self._address is not None:
            await in_thread(self._address.unlink, missing_ok=True)

    def _accept(self, reader: StreamReader, writer: StreamWriter) -> None:
        self._tasks.start(self._serve(reader, writer), "session")

    async def _serve(self, reader: StreamReader, writer: StreamWriter) -> None:
        owner = ""
        fd = writer.get_extra_info("socket").fileno()
        file_lock.close_in_child(fd)
        try:
            hello = wire.decode_request(await wire.read_frame(reader))
            if not isinstance(hello, wire.Hello) or hello.protocol != wire.PROTOCOL:
                refusal = ConnectionFailed(
                    str(self._address), f"the host speaks protocol {wire.PROTOCOL}; upgrade"
                )
                wire.write(writer, wire.failure(0, refusal))
                return
            owner = hello.owner
            await self._welcome(owner, writer)
            while True:
                request = wire.decode_request(await wire.read_frame(reader))
                self._dispatcher.submit(owner, request, lambda answer: wire.write(writer, answer))
                await writer.drain()
        except (asyncio.IncompleteReadError, OSError, *wire.UNREADABLE):
            pass
        finally:
            file_lock.closed(fd)
            if not self._is_closing:
                self._end_session(owner, writer)

    def _end_session(self, owner: str, writer: StreamWriter) -> None:
        writer.close()
        if self._sessions.get(owner) is writer:
            del self._sessions[owner]
            self._tasks.start(self._reap_client(owner), "reaper")

    async def _welcome(self, owner: str, writer: StreamWriter) -> None:
        earlier = self._sessions.get(owner)
        self._sessions[owner] = writer
        if earlier is not None:
            earlier.close()
            await self._dispatcher.leave(owner)
        wire.write(writer, wire.PackedReply(0, wire.encode(self._engine.clock.now_s())))

    async def _reap_client(self, owner: str) -> None:
        """Release what a client held once it is known to be dead."""
        await self._dispatcher.leave(owner)
        wait_s = _FIRST_LOOK_S
        while owner not in self._sessions:
            if await in_thread(self._folder.reap_client, owner):
                await self._dispatcher.forget(owner)
                return
            await SYSTEM_CLOCK.sleep(wait_s)
            wait_s = min(wait_s * 2, _LAST_LOOK_S)

    def _is_unheard(self, owner: str) -> bool:
        """Whether a client may have asked for more time in what was not read yet.

        A host that stood still (stopped, swapped out, a sleeping laptop) finds leases over whose
        extensions wait in its sockets: what was asked in time is heard first.
        """
        if owner in self._heard or owner not in self._sessions:
            return False
        if owner not in self._hearing:
            self._hearing.add(owner)
            self._tasks.start(self._hear(owner), "hearing")
        return True

    async def _until_heard(self) -> None:
        while self._hearing and not self._is_closing:
            await yield_to_loop()

    async def _hear(self, owner: str) -> None:
        """Let a client's requests be read and begin, then end those of its leases that are over."""
        until_s = SYSTEM_CLOCK.now_s() + _HEARING_S
        quiet_turns = 0
        while quiet_turns < _QUIET_TURNS and SYSTEM_CLOCK.now_s() < until_s:
            await yield_to_loop()
            writer = self._sessions.get(owner)
            quiet_turns = 0 if writer is not None and _has_unread(writer) else quiet_turns + 1
        self._hearing.discard(owner)
        self._heard.add(owner)
        self._engine.catch_up()
        self._heard.discard(owner)


def _has_unread(writer: StreamWriter) -> bool:
    if writer.is_closing():
        return False
    count = array("i", [0])
    fcntl.ioctl(writer.get_extra_info("socket").fileno(), termios.FIONREAD, count)
    return count[0] > 0


# The data folder: its files, the process that hosts the engine, and the clients alive. Blocks: call
# it in a thread.
#
# `queues.db` the database · `engine.lock` held by the process that hosts the engine, and naming
# its socket · `engine.sock` · `owners/<id>.lock` held by each process that may hold leases. The
# operating system frees a lock when its process dies, however it dies.

# A Unix socket's address holds 104 (macOS) to 108 (Linux) bytes.
_MAX_SOCKET_BYTES = 100


class DataFolder:
    """The files of one embedded broker."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.database = path / "queues.db"
        self.engine_lock = path / "engine.lock"
        self._owners = path / "owners"

    def owner_lock(self, owner: str) -> FileLock:
        """What an owner holds while it lives."""
        return FileLock(self._owners / f"{owner}.lock")

    def enrol(self, lock: FileLock) -> bool:
        """Let an owner live; makes the folders that are missing, for this user only."""
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._owners.mkdir(mode=0o700, exist_ok=True)
        while not lock.try_acquire():
            # The host took the file for a dead owner's in the moment between making and locking.
            continue
        return True

    def dismiss(self, lock: FileLock) -> None:
        """Let an owner die."""
        lock.path.unlink(missing_ok=True)
        lock.release()

    def reap_client(self, owner: str) -> bool:
        """Remove a dead client's lock file; False when the client lives."""
        lock = self.owner_lock(owner)
        if not lock.path.exists():
            return True
        if not lock.try_acquire():
            return False
        self.dismiss(lock)
        return True

    def owners(self) -> list[str]:
        """Every owner with a lock file, dead or alive."""
        return [path.stem for path in self._owners.glob("*.lock")]

    def listen(self) -> tuple[Path, socket.socket]:
        """A socket for a host to accept on, and its address."""
        address = self.path.absolute() / "engine.sock"
        if len(os.fsencode(address)) > _MAX_SOCKET_BYTES:
            digest = hashlib.sha256(os.fsencode(self.path.resolve())).hexdigest()[:24]
            address = _private_temporary_folder() / f"{digest}.sock"
        address.unlink(missing_ok=True)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            listener.bind(str(address))
            address.chmod(0o600)
        except BaseException:
            listener.close()
            raise
        return address, listener

    def address(self) -> Path | None:
        """Where the host said it listens; it may be dead by now."""
        try:
            text = self.engine_lock.read_text()
        except FileNotFoundError:
            return None
        return Path(text) if text else None


def _private_temporary_folder() -> Path:
    folder = Path(tempfile.gettempdir()) / f"pumphouse-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise StorageFailed(
            str(folder), "must be this user's alone (chmod 700), or use a shorter queue folder"
        )
    return folder
