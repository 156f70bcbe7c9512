"""SQLite's and the file system's errors in our words."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pump.errors import StorageFailed


@contextmanager
def translate(path: Path) -> Iterator[None]:
    """Raise `StorageFailed`, naming the file, for what SQLite or the system raises."""
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        raise storage_failed(path, error) from error


def storage_failed(path: Path, error: Exception) -> StorageFailed:
    """Say what happened to the file and what to do."""
    return StorageFailed(str(path), f"{error}; {_remedy(error)}")


def _remedy(error: Exception) -> str:
    text = str(error).lower()
    if "full" in text or "no space" in text or "too large" in text:
        return "free some disk space, or raise max_bytes; the queue goes on by itself"
    if "malformed" in text or "not a database" in text:
        return "the file is damaged; move it away or restore a copy, then start again"
    if isinstance(error, PermissionError) or "readonly" in text or "unable to open" in text:
        return "make the folder and its files writable for this user"
    if "disk i/o" in text:
        return "the disk refused a write (full, over its quota or limit, or failing)"
    return "nothing was acknowledged; the operation can be tried again"
