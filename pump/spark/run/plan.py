"""Plan: everything a task needs to know, on its way from the driver. Survives pickling."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from math import ceil
from os import PathLike
from pathlib import Path
from typing import Any, Protocol

import attrs

from ...app import App
from ...backoff import Backoff
from ...errors import ConfigurationError, PumpError
from ...message import new_id
from ...ports import QueueStats
from ...stores.file_lock import FileLock
from ...stores.ledger.parquet_ledger import ParquetLedger
from ...stores.ledger.rows import translated
from ...subscription import Subscription
from .summary import TaskSummary

# Slicing: how many tasks the next slice has, and whether there is one. Pure.

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


@attrs.frozen(kw_only=True)
class TaskPlan:
    """One slice's tasks: which app, on what, and until when."""

    app_reference: AppReference
    subscriptions: tuple[str, ...]
    """Those the app has on the driver, in their order."""
    gateway: str | None = attrs.field(default=None, repr=False)
    """The gateway's URL, where it is one; it may hold secrets."""
    concurrency: Mapping[str, int] = attrs.field(factory=dict)
    stopped: frozenset[str] = frozenset()
    """Subscriptions whose pumps have stopped for good."""
    ledger: ParquetLedger
    run_folder: Path
    messages: int
    time_s: float
    flush: int
    is_disk_shared: bool = False
    """Whether a task's disk is the driver's, so that a spill on it is found again."""
    prepare: Callable[[], object] | None = None


# Cluster: where the tasks of a slice run.


class Cluster(Protocol):
    """Where tasks run."""

    async def slots(self) -> int:
        """How many tasks run at once, at the moment."""

    @property
    def is_one_machine(self) -> bool:
        """Whether every task has the driver's own disk and working folder."""

    async def run(self, plan: TaskPlan, tasks: int) -> list[TaskSummary]:
        """Run so many tasks to their end. Raises `SliceFailed`. Cancelled, it kills them."""


# Errors of runs on Spark.


@attrs.frozen
class SliceFailed(PumpError):
    """Spark gave a slice up. What its tasks held comes again when its leases end."""

    detail: str

    def __str__(self) -> str:
        return f"Spark gave up a slice: {self.detail}; its messages come again, so run it again"


@attrs.frozen
class TaskFailed(PumpError):
    """A task broke by an error that is not one of ours; said here in words, as its class may be
    known in the task only.
    """

    detail: str
    trace: str = ""

    def __str__(self) -> str:
        return f"a task failed: {self.detail}"


# App references: how an app gets from the driver into a task.
#
# | the app is                            | it travels  | and in the task                          |
# |---------------------------------------|-------------|------------------------------------------|
# | a name in a module that can be        | by name     | is the one that the module makes there,  |
# | imported (`orders:app`)               |             | once a process                           |
# | made in a notebook, or in `__main__`  | by value    | is a copy for every task                 |
#
# By name, what handlers know as `app` is the app that runs; by value too, since they travel with
# it.


@attrs.frozen(kw_only=True)
class AppByName:
    """An app in a module, and the folders to look for the module in."""

    target: str
    folders: tuple[str, ...] = ()


@attrs.frozen(kw_only=True)
class AppByValue:
    """An app, pickled."""

    blob: bytes = attrs.field(repr=False)
    folders: tuple[str, ...] = ()


AppReference = AppByName | AppByValue


def packed(app: App) -> AppReference:
    """The app, ready to travel. `ConfigurationError` says what of it cannot."""
    named = _name_of(app)
    if named is not None:
        return named
    from pyspark import cloudpickle

    try:
        return AppByValue(blob=cloudpickle.dumps(app), folders=_folders())
    except Exception as error:  # broad: whatever a part of the user's raises when it is pickled
        raise ConfigurationError(
            "app",
            type(error).__name__,
            f"it cannot travel to the tasks ({error}); put it into a module of its own, as a name "
            "that can be imported there, or make what cannot be pickled in the handlers",
        ) from error


def unpacked(app_reference: AppReference) -> App:
    """The app, in the task. Raises what its module, or a part of it, raises when it is loaded."""
    for folder in app_reference.folders:
        if folder not in sys.path and Path(folder).is_dir():
            sys.path.insert(0, folder)
    if isinstance(app_reference, AppByName):
        from ...loading import load_app

        return load_app(app_reference.target)
    from pyspark import cloudpickle

    app: Any = cloudpickle.loads(app_reference.blob)
    assert isinstance(app, App)
    return app


def _folders() -> tuple[str, ...]:
    """Where this process finds modules that are not installed."""
    found: list[str] = []
    for path in sys.path:
        folder = os.path.abspath(path)
        is_installed = folder.startswith((sys.prefix, sys.base_prefix))
        if not is_installed and os.path.isdir(folder) and folder not in found:
            found.append(folder)
    return tuple(found)


def _name_of(app: App) -> AppByName | None:
    """Where the app can be imported from, if it can: handlers of that module mean that one."""
    for name, module in list(sys.modules.items()):
        if name == "__main__" or not getattr(module, "__file__", None):
            continue
        for attribute, value in list(vars(module).items()):
            if value is app:
                return AppByName(target=f"{name}:{attribute}", folders=_folders())
    return None


def check_same(app: App, names: Sequence[str]) -> None:
    """`ConfigurationError` unless the app has the subscriptions that it had on the driver."""
    found = [each.name for each in app.subscriptions]
    if found != list(names):
        raise ConfigurationError(
            "app",
            found,
            f"on the driver its subscriptions are {list(names)}; declare all of them in the "
            "module, not after its import, and ship the same version to all machines",
        )


# Options: how an app is run on Spark. Frozen, checked once, each with its default.


@attrs.frozen(kw_only=True)
class SparkRunOptions:
    """The options of `App.run_on_spark` and `pump spark run`."""

    until_empty: bool = False
    """End by itself, once the app's queues are empty."""
    run_for: timedelta | None = None
    """End by itself after this long; None runs until it is told to stop."""
    ledger: str | PathLike[str] | None = None
    """The folder of Parquet files for the outcomes, which every executor must see. By default
    the app's own, when that is one, and otherwise `.pumphouse/ledger`."""
    tasks: int | None = None
    """At most this many tasks at once; by default as many as Spark has room for."""
    slice_messages: int = 50_000
    """A task ends after this many messages, and the next slice is planned anew."""
    slice_time: timedelta = timedelta(minutes=1)
    """A task receives for at most this long."""
    flush: int = 200
    """The most messages of a subscription that a task has received and not yet settled: what a
    task that is killed may have handled in vain."""
    prepare: Callable[[], object] | None = attrs.field(default=None, repr=False)
    """Called in a task before the app is loaded, to set up logging for instance; it must survive
    pickling."""

    def __attrs_post_init__(self) -> None:
        for name in ("tasks", "slice_messages", "flush"):
            _at_least_one(name, getattr(self, name))
        for name in ("run_for", "slice_time"):
            _more_than_zero(name, getattr(self, name))
        if self.until_empty and self.run_for is not None:
            raise ConfigurationError(
                "run_for", self.run_for, "it excludes until_empty; choose when the run ends"
            )


def _at_least_one(name: str, value: int | None) -> None:
    if value is not None and value < 1:
        raise ConfigurationError(name, value, "use 1 or more")


def _more_than_zero(name: str, value: timedelta | None) -> None:
    if value is not None and value <= timedelta(0):
        raise ConfigurationError(name, value, "use more than zero")
