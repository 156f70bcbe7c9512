"""Options: how an app is run on Spark. Frozen, checked once, each with its default."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from os import PathLike

import attrs

from ...errors import ConfigurationError


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
