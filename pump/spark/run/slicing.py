"""Slicing: how many tasks the next slice has, and whether there is one. Pure."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from math import ceil
from pathlib import Path

import attrs

from ...backoff import Backoff
from ...message import new_id
from ...ports import QueueStats
from ...stores.file_lock import FileLock
from ...stores.ledger.rows import translated
from ...subscription import Subscription

_PROBE = Backoff(initial=timedelta(seconds=5), maximum=timedelta(minutes=1), jitter=0)


@attrs.frozen(kw_only=True)
class Depth:
    """What is in the queues, all together; a provider's estimate where it only estimates."""

    ready: int = 0
    """To be received now."""
    in_flight: int = 0
    delayed: int = 0

    @classmethod
    def of(cls, stats: Iterable[QueueStats]) -> Depth:
        """The sum over queues."""
        known = list(stats)
        return cls(
            ready=sum(each.visible for each in known),
            in_flight=sum(each.in_flight for each in known),
            delayed=sum(each.delayed for each in known),
        )

    @property
    def total(self) -> int:
        """All that is not settled yet."""
        return self.ready + self.in_flight + self.delayed


def handful(subscriptions: Iterable[Subscription], *, flush: int) -> int:
    """The messages that keep one task busy: as many as it handles at once."""
    return max(1, sum(min(each.concurrency, flush) for each in subscriptions))


def count_tasks(ready: int, *, handful: int, slots: int, most: int | None) -> int:
    """The tasks of the next slice: one for every handful of messages, within what there is room
    for; none when nothing can be received. Asked for more tasks than slots, as many as asked for.
    """
    if ready <= 0:
        return 0
    return min(ceil(ready / handful), max(1, slots) if most is None else most)


@attrs.define
class Probing:
    """When to receive though nothing is said to be ready, only in flight.

    Some brokers, as NATS, count a message whose lease ran out, or whose retry is due, as in flight
    until it is received; and between slices nothing receives.
    """

    _since_s: float | None = None
    _count: int = 0

    def is_due(self, depth: Depth, now_s: float) -> bool:
        """Whether it has been so for long enough; the next time it takes longer."""
        if depth.ready or not depth.in_flight:
            self._since_s, self._count = None, 0
            return False
        if self._since_s is None:
            self._since_s = now_s
        if now_s - self._since_s < _PROBE.delay_s(self._count + 1, 0.0):
            return False
        self._since_s, self._count = None, self._count + 1
        return True


# Run folder: what a driver and its tasks tell each other, in the folder of the ledger.
#
#     _spark/<run>/driver.lock    held by the driver for as long as it lives
#     _spark/<run>/stop           there when the tasks are to drain
#
# A task that does not find its run's folder at its start cannot see the ledger either; one that
# misses it later has lost its driver, and drains as well.

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
    """Locked before it has its name, so that a clean-up never takes it for that of a dead one."""
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
