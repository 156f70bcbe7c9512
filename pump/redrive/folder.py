"""Folder: where the redrives of one dead-letter queue keep what they must not forget.

    queue.json            which broker and queue it belongs to
    lock                  held by the redrive that runs
    <time>-<id>/          one run: plan.json, snapshot.parquet, selection.parquet, *.record
                          and, at its end, done.json

A run with a record and without `done.json` was cut short: the same plan goes on with it. One
without a record has sent nothing, such as a dry run that was killed: the next run removes it, and
takes a snapshot of its own. Whatever the plan, nobody sends again what any run in the folder has
recorded as sent.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import attrs
import msgspec

from ..errors import ConfigurationError, StorageFailed
from ..ids import new_id
from ..stores.file_lock import FileLock
from ..stores.ledger.row_store import translated
from .arrow import sync
from .plan import Plan
from .record import SUFFIX, Known

DEFAULT_BASE = Path(".pumphouse/redrive")
_UNFIT = re.compile(r"[^A-Za-z0-9_.-]+")


@attrs.frozen
class RunFolder:
    """The files of one run. Every method is blocking."""

    path: Path

    @property
    def snapshot(self) -> Path:
        """The dead letters as they were seen."""
        return self.path / "snapshot.parquet"

    @property
    def selection(self) -> Path:
        """Those that are to be sent: a file, or Spark's folder of files."""
        return self.path / "selection.parquet"

    @property
    def stop(self) -> Path:
        """There once the tasks of a run are to end."""
        return self.path / "stop"

    @property
    def is_done(self) -> bool:
        """Whether it has come to its end."""
        return (self.path / "done.json").exists()

    @property
    def has_records(self) -> bool:
        """Whether anything may have been sent."""
        return any(self.path.glob(f"*{SUFFIX}"))

    def plan(self) -> Plan | None:
        """What it was asked to do; None when it was cut short before it knew."""
        found = _read(self.path / "plan.json")
        return None if found is None else Plan(**found)

    def begun(self) -> dict[str, Any]:
        """What was noted when the selection was made."""
        return _read(self.path / "begun.json") or {}

    def begin(self, notes: dict[str, Any]) -> None:
        """Note that snapshot and selection are whole."""
        _write(self.path / "begun.json", notes)

    def end(self, notes: dict[str, Any]) -> None:
        """Note that it has come to its end."""
        _write(self.path / "done.json", notes)

    def remove_data(self) -> None:
        """Remove snapshot and selection, which quote messages."""
        with translated(self.path):
            for path in (self.snapshot, self.selection):
                if path.is_dir():
                    shutil.rmtree(path)
                else:
                    path.unlink(missing_ok=True)

    def remove(self) -> None:
        """Leave nothing of it; for runs that have sent nothing."""
        with translated(self.path):
            shutil.rmtree(self.path)


class QueueFolder:
    """The runs of one dead-letter queue, for whoever holds the lock. Blocking."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def runs(self) -> list[RunFolder]:
        """All runs, the oldest first."""
        with translated(self.path):
            plans = sorted(self.path.glob("*/plan.json"))
        return [RunFolder(each.parent) for each in plans]

    def unfinished(self, plan: Plan) -> RunFolder | None:
        """The run of this very plan that was cut short, if there is one."""
        for run in reversed(self.runs()):
            if run.has_records and not run.is_done and run.plan() == plan:
                return run
        return None

    def new_run(self, plan: Plan, now_s: float) -> RunFolder:
        """A folder for a new run. What was cut short before anything was sent is removed."""
        for run in self.runs():
            if not run.has_records:
                run.remove()
        moment = datetime.fromtimestamp(now_s, UTC).strftime("%Y%m%dT%H%M%S")
        run = RunFolder(self.path / f"{moment}-{new_id()}")
        with translated(run.path):
            run.path.mkdir(mode=0o700)
            sync(self.path)
        _write(run.path / "plan.json", attrs.asdict(plan))
        return run

    def sent_before(self, but: RunFolder) -> dict[str, float | None]:
        """What other runs have sent and not removed, and when: it may still be in the dead-letter
        queue.
        """
        unremoved: dict[str, float | None] = {}
        for run in self.runs():
            if run != but:
                known = Known()
                known.read(run.path)
                unremoved |= {entry: known.sent_at_s(entry) for entry in known.unremoved}
        return unremoved


def default_folder(plan: Plan) -> Path:
    """Where the runs of a queue are kept when nobody names a place."""
    name = _UNFIT.sub("-", plan.queue.rsplit("/", 1)[-1])[:60]
    return DEFAULT_BASE / f"{name}-{plan.source_id}"


@contextmanager
def opened(path: Path, plan: Plan) -> Iterator[QueueFolder]:
    """The folder of the plan's queue, made when it is not there, for this process alone.

    `ConfigurationError` when another process works in it, or it belongs to another queue.
    """
    path = path.absolute()
    with translated(path):
        path.mkdir(parents=True, exist_ok=True)
        lock = FileLock(path / "lock")
        is_ours = lock.try_acquire()
    if not is_ours:
        raise ConfigurationError(
            "--run",
            str(path),
            f"another redrive of {plan.queue!r} is running; wait for it, or stop it with Ctrl-C",
        )
    try:
        _claim(path, plan)
        yield QueueFolder(path)
    finally:
        lock.release()


def _claim(path: Path, plan: Plan) -> None:
    ours = {"gateway": plan.gateway, "queue": plan.queue}
    found = _read(path / "queue.json")
    if found is None:
        strangers = [
            each.name for each in path.iterdir() if each.name not in ("lock", "queue.json")
        ]
        if strangers:
            raise ConfigurationError(
                "--run", str(path), f"holds {strangers[0]!r}; name a new or empty folder"
            )
        _write(path / "queue.json", ours)
    elif found != ours:
        raise ConfigurationError(
            "--run",
            str(path),
            f"belongs to {found.get('queue')!r} on {found.get('gateway')}; name another folder",
        )


def _read(path: Path) -> dict[str, Any] | None:
    with translated(path):
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            return None
    try:
        found = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise StorageFailed(str(path), f"is damaged ({error}); remove its folder") from None
    return found if isinstance(found, dict) else {}


def _write(path: Path, content: dict[str, Any]) -> None:
    temporary = path.with_name(f"_{path.name}.tmp")
    with translated(path):
        temporary.write_bytes(msgspec.json.encode(content))
        sync(temporary)
        os.replace(temporary, path)
        sync(path.parent)
