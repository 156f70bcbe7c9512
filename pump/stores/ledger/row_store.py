"""Row stores: what a ledger writes its rows to, and what may go wrong there."""

from __future__ import annotations

import errno
import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

from ...errors import StorageFailed
from ..opening import translated as sqlite_translated
from .schema import Row

_PASSING_ERRNOS = {errno.ENOSPC, errno.EDQUOT, errno.EAGAIN, errno.EINTR}
_DAMAGED_NAMES = ("SQLITE_CORRUPT", "SQLITE_NOTADB")
_PASSING_NAMES = ("SQLITE_FULL", "SQLITE_BUSY", "SQLITE_LOCKED")


class RowStore(Protocol):
    """Blocking, used by one thread at a time. Every method may raise `StorageFailed`."""

    @property
    def care_every_s(self) -> float | None:
        """How often `care` wants to be called; None for never."""

    def open(self) -> None:
        """Be ready to append; not raised for what passes, such as a full disk."""

    def append(self, rows: Sequence[Row]) -> bool:
        """Write all of these durably, or nothing; say whether `care` should come soon."""

    def care(self, now_s: float) -> None:
        """Do what is due now and then: roll, tidy, forget what is too old."""

    def close(self, now_s: float) -> None:
        """Care a last time and let go of everything, also when that fails."""


@contextmanager
def translated(path: str | os.PathLike[str]) -> Iterator[None]:
    """Turn SQLite's and the system's errors into `StorageFailed`, which says what to do."""
    with sqlite_translated(os.fspath(path)):
        try:
            yield
        except OSError as error:
            why = f"{error.strerror or error}; {_remedy(error)}"
            raise StorageFailed(os.fspath(path), why) from error


def is_passing(error: StorageFailed) -> bool:
    """Whether the cause is one that goes by itself, or when somebody has made room."""
    match error.__cause__:
        case sqlite3.Error() as cause:
            return getattr(cause, "sqlite_errorname", "").startswith(_PASSING_NAMES)
        case OSError() as cause:
            return cause.errno in _PASSING_ERRNOS
        case _:
            return False


def is_damaged(error: StorageFailed) -> bool:
    """Whether the file itself is spoilt, or gone: trying again cannot help."""
    cause = error.__cause__
    name = getattr(cause, "sqlite_errorname", "")
    return cause is None or name.startswith(_DAMAGED_NAMES)


def _remedy(error: OSError) -> str:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "free some disk space"
    if isinstance(error, PermissionError) or error.errno == errno.EROFS:
        return "make it writable for this user, or name another place"
    if isinstance(error, FileExistsError | NotADirectoryError):
        return "something else has that name; move it away, or name another place"
    return "check the disk and the path"
