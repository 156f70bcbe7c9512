"""Run folder: what a driver and its tasks tell each other, in the folder of the ledger.

    _spark/<run>/driver.lock    held by the driver for as long as it lives
    _spark/<run>/stop           there when the tasks are to drain

A task that does not find its run's folder at its start cannot see the ledger either; one that
misses it later has lost its driver, and drains as well.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import attrs

from ...ids import new_id
from ...stores.file_lock import FileLock
from ...stores.ledger.row_store import translated

HOME = "_spark"
_LOCK = "driver.lock"
_STOP = "stop"


@attrs.frozen
class RunFolder:
    """The folder of one run."""

    path: Path

    @property
    def exists(self) -> bool:
        """Whether it can be seen from here."""
        return self.path.is_dir()

    @property
    def is_stop_asked(self) -> bool:
        """Whether the tasks are to drain."""
        return (self.path / _STOP).exists() or not self.path.exists()

    def ask_stop(self) -> None:
        """Have every task drain. Raises `StorageFailed`."""
        with translated(self.path):
            (self.path / _STOP).touch()


@contextmanager
def run_folder(ledger: Path) -> Iterator[RunFolder]:
    """A folder of our own below the ledger's, gone afterwards, as are those of dead drivers."""
    home = ledger / HOME
    folder = RunFolder(home / new_id())
    with translated(folder.path):
        lock = _made(folder.path)
    try:
        _tidy(home)
        yield folder
    finally:
        shutil.rmtree(folder.path, ignore_errors=True)
        lock.release()


def _made(path: Path) -> FileLock:
    """Locked before it has its name, so that whoever tidies up never takes it for a dead one's."""
    unnamed = path.with_name(f".{path.name}")
    unnamed.mkdir(parents=True)
    lock = FileLock(unnamed / _LOCK)
    lock.try_acquire()
    unnamed.rename(path)
    return lock


def _tidy(home: Path) -> None:
    # What another driver removes at the same moment is as good as tidied.
    with suppress(OSError):
        for path in home.glob("[!.]*"):
            lock = FileLock(path / _LOCK)
            if lock.path.exists() and lock.try_acquire():
                shutil.rmtree(path, ignore_errors=True)
                lock.release()
