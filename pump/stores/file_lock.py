"""Locks on files: held by one process, freed by the operating system however that one dies."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path


class FileLock:
    """An exclusive lock on a file, for as long as this object holds it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._fd: int | None = None

    def try_acquire(self) -> bool:
        """Take the lock unless another holder, also in this process, has it."""
        fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Who locks a file that was removed meanwhile holds nothing.
            is_ours = os.path.samestat(os.fstat(fd), os.stat(self.path))
        except (BlockingIOError, FileNotFoundError):
            is_ours = False
        except BaseException:
            os.close(fd)
            raise
        if not is_ours:
            os.close(fd)
            return False
        self._fd = fd
        close_in_child(fd)
        return True

    def inscribe(self, text: str) -> None:
        """Replace the content of the file that is locked."""
        assert self._fd is not None
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, text.encode(), 0)

    def release(self, *, removing: bool = False) -> None:
        """Let go, and remove the file first if asked to; harmless when not held."""
        fd, self._fd = self._fd, None
        if fd is None:
            return
        if removing:
            self.path.unlink(missing_ok=True)
        if closed(fd):
            os.close(fd)


# Forking: what a forked child must let go of at once.
#
# A child shares its parent's locks and sockets. Held on to, they outlive the parent: no process
# could take over from a host that died, and its clients would not even notice.

_fds: set[int] = set()


def close_in_child(fd: int) -> None:
    """Have every forked child close this descriptor."""
    _fds.add(fd)


def closed(fd: int) -> bool:
    """Take note that it is closed here, for its number may be another's soon; False in a child,
    where that was done.
    """
    is_open = fd in _fds
    _fds.discard(fd)
    return is_open


def _close_all() -> None:
    while _fds:
        os.close(_fds.pop())


os.register_at_fork(after_in_child=_close_all)
