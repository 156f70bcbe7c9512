"""Plan: everything a task needs to know, on its way from the driver. Survives pickling."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import attrs

from ...stores.ledger.parquet_ledger import ParquetLedger
from .travelling import Luggage


@attrs.frozen(kw_only=True)
class TaskPlan:
    """One slice's tasks: which app, on what, and until when."""

    luggage: Luggage
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
