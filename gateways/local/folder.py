"""The data folder: where the files are, who holds the engine, who is alive. Blocks: call it
in a thread.

`queues.db` the database · `engine.lock` held by the process that hosts the engine, and naming
its socket · `engine.sock` · `owners/<id>.lock` held by each process that may hold leases. The
operating system frees a lock when its process dies, however it dies.
"""

from __future__ import annotations

import hashlib
import os
import socket
import stat
import tempfile
from pathlib import Path

from pump.errors import StorageFailed
from pump.stores.file_lock import FileLock

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

    def bury(self, owner: str) -> bool:
        """Remove what a dead owner left here; False when it lives."""
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
