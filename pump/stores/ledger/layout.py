"""Layout: what is where in the folder of a Parquet ledger, and how a file comes to be there.

    day=2026-11-16/outcomes-<writer>-<first>-<last>.parquet    the rows of one UTC day
    _journal/<writer>.db, .lock, .tmp                          what is not rolled yet

Names that begin with `_` or `.` are passed over by whoever reads such folders.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import date
from pathlib import Path

import attrs

from .journal import LOCK_SUFFIX, SUFFIX, Range
from .row_store import translated

JOURNALS = "_journal"
TEMPORARY_SUFFIX = ".tmp"
_DAY_US = 86_400_000_000
_FIRST_DAY = date(1970, 1, 1).toordinal()
_DAY_NAME = re.compile(r"day=(\d{4}-\d\d-\d\d)")
_FILE_NAME = re.compile(r"outcomes-([0-9a-f]{32})-(\d{9,})-(\d{9,})\.parquet")


@attrs.frozen
class OutcomeFile:
    """A file of ours, by its name."""

    path: Path
    day: date
    writer: str
    range: Range


def day_of(time_us: int) -> date:
    """The UTC day of a moment."""
    return date.fromordinal(_FIRST_DAY + time_us // _DAY_US)


def file_name(writer: str, range_: Range) -> str:
    """The one name for these rows."""
    return f"outcomes-{writer}-{range_.first:09d}-{range_.last:09d}.parquet"


def journals_in(folder: Path) -> list[Path]:
    """Every journal, whoever writes it."""
    with translated(folder):
        return sorted((folder / JOURNALS).glob(f"*{SUFFIX}"))


def stray_locks_in(folder: Path) -> list[Path]:
    """Locks without a journal: their process died between making the one and the other."""
    with translated(folder):
        locks = (folder / JOURNALS).glob(f"*{LOCK_SUFFIX}")
        return [lock for lock in locks if not lock.with_suffix(SUFFIX).exists()]


def days_in(folder: Path) -> list[tuple[date, Path]]:
    """The folders of days, oldest first; a link is not ours."""
    found = []
    with translated(folder):
        for path in folder.iterdir() if folder.is_dir() else ():
            day = day_named(path.name)
            if day is not None and path.is_dir() and not path.is_symlink():
                found.append((day, path))
    return sorted(found)


def day_named(name: str) -> date | None:
    """The day that a folder's name says, if it does."""
    match = _DAY_NAME.fullmatch(name)
    with suppress(ValueError):
        return None if match is None else date.fromisoformat(match[1])
    return None


def outcome_file(path: Path, day: date) -> OutcomeFile | None:
    """What the name of a file says, if it is one of ours."""
    match = _FILE_NAME.fullmatch(path.name)
    if match is None:
        return None
    return OutcomeFile(path, day, match[1], Range(int(match[2]), int(match[3])))


def put(folder: Path, day: date, name: str, write: Callable[[Path], None], temporary: Path) -> None:
    """Have `write` write a file that is there, whole and durable, when this returns.

    Until then no reader sees it. What had that name before is replaced.
    """
    day_folder = folder / f"day={day}"
    with translated(day_folder / name):
        if not day_folder.exists():
            day_folder.mkdir(exist_ok=True)
            _sync(folder)
        try:
            write(temporary)
            _sync(temporary)
            os.replace(temporary, day_folder / name)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        _sync(day_folder)


def remove_days_before(folder: Path, day: date) -> None:
    """Remove files of ours of earlier days, and the folders that this leaves empty."""
    for found, day_folder in days_in(folder):
        if found >= day:
            return
        with translated(day_folder):
            for path in _files_in(day_folder):
                if outcome_file(path, found) is not None:
                    path.unlink(missing_ok=True)
            # Somebody else's file in it, or another process that was faster.
            with suppress(OSError):
                day_folder.rmdir()


def _files_in(folder: Path) -> Iterator[Path]:
    with suppress(FileNotFoundError):
        yield from [path for path in folder.iterdir() if path.is_file()]


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
