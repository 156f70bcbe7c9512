"""Locks that die with their process."""

from __future__ import annotations

import fcntl
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from pump.stores.file_lock import FileLock


def test_when_a_lock_is_held_then_nobody_else_gets_it_until_it_is_released(tmp_path: Path) -> None:
    first, second = FileLock(tmp_path / "lock"), FileLock(tmp_path / "lock")
    assert first.try_acquire()
    assert not second.try_acquire()

    first.release()
    first.release()

    assert second.try_acquire()
    second.release(removing=True)
    assert not (tmp_path / "lock").exists()


def remove(path: Path) -> None:
    path.unlink()


def replace(path: Path) -> None:
    path.rename(path.with_name("old"))
    path.touch()


@pytest.mark.parametrize("meddle", [remove, replace])
def test_when_the_file_goes_in_the_moment_it_is_locked_then_nothing_is_held(
    meddle: Callable[[Path], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = fcntl.flock

    def flock(fd: int, operation: int) -> None:
        real(fd, operation)
        meddle(tmp_path / "lock")

    monkeypatch.setattr(fcntl, "flock", flock)

    assert not FileLock(tmp_path / "lock").try_acquire()


FORKING = """
import os, sys
from pathlib import Path
from pump.stores.file_lock import FileLock

lock, another = FileLock(Path(sys.argv[1])), FileLock(Path(sys.argv[1]))
assert lock.try_acquire()
child = os.fork()
if child == 0:
    try:
        lock.release()
    finally:
        os._exit(int(another.try_acquire()))
assert os.waitpid(child, 0)[1] == 0, "it was its parent's all the time"
assert not another.try_acquire()
lock.release()
assert another.try_acquire()
"""


def test_when_a_process_forks_then_its_child_holds_nothing_and_may_release_it(
    tmp_path: Path,
) -> None:
    """T4: in a process of its own, for one with threads had better not fork."""
    program = [sys.executable, "-c", FORKING, str(tmp_path / "lock")]

    subprocess.run(program, check=True)
