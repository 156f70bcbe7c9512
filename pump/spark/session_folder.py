"""Session folder: everything that a Spark session writes here, gone when the session is.

A process that is killed cannot clean up, so each session begins by removing the folders whose
owner is dead. A folder's lock tells: the operating system frees it however its holder dies.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..errors import ConfigurationError
from ..stores.file_lock import FileLock

PREFIX = "pumphouse-spark-"
_LOCK = "lock"


@contextmanager
def session_folder() -> Iterator[Path]:
    """A folder of one's own below the temporary folder; those of the dead are removed first."""
    try:
        folder, lock = _created()
    except OSError as error:
        raise ConfigurationError(
            "TMPDIR",
            tempfile.gettempdir() if tempfile.tempdir else "",
            f"Spark needs a folder for its files, and none could be made there ({error}); point "
            "TMPDIR at one that can be written",
        ) from error
    try:
        _remove_abandoned(folder.parent)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        lock.release()


def _created() -> tuple[Path, FileLock]:
    while True:
        folder = Path(tempfile.mkdtemp(prefix=PREFIX))
        lock = FileLock(folder / _LOCK)
        # Another session that begins just now may have taken it for abandoned.
        if lock.try_acquire():
            return folder, lock


def _remove_abandoned(parent: Path) -> None:
    for folder in parent.glob(f"{PREFIX}*"):
        # Without its lock it is not ours, or was made a moment ago.
        if (folder / _LOCK).is_file():
            _remove_if_abandoned(folder)


def _remove_if_abandoned(folder: Path) -> None:
    lock = FileLock(folder / _LOCK)
    try:
        if lock.try_acquire():
            shutil.rmtree(folder, ignore_errors=True)
    except OSError:
        # Another user's, or removed meanwhile: somebody else's business.
        pass
    finally:
        lock.release()
