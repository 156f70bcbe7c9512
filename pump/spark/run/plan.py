"""Plan: everything a task needs to know, on its way from the driver. Survives pickling."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from os import PathLike
from pathlib import Path
from typing import Any, Protocol

import attrs

from ...app import App
from ...errors import ConfigurationError, PumpError
from ...stores.ledger.parquet_ledger import ParquetLedger
from .summary import TaskSummary


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
