"""Folder: where the redrives of one dead-letter queue keep what they must not forget.

    queue.json            which broker and queue it belongs to
    lock                  held by the redrive that runs
    <time>-<id>/          one run: plan.json, snapshot.parquet, selection.parquet, *.record
                          and, at its end, done.json

A run with a record and without `done.json` was cut short: the same plan goes on with it. One
without a record has sent nothing, such as a dry run that was killed: the next run removes it, and
takes a snapshot of its own. Whatever the plan, no run sends again what any run in the folder has
recorded as sent.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import attrs
import msgspec

from ..errors import ConfigurationError, StorageFailed
from ..gateway_url import without_secrets
from ..message import new_id
from ..stores.file_lock import FileLock
from ..stores.ledger.rows import translated
from .rows import sync

DEFAULT_BASE = Path(".pumphouse/redrive")
_UNFIT = re.compile(r"[^A-Za-z0-9_.-]+")


@attrs.frozen
class RedriveFolder:
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
    """The runs of one dead-letter queue, for the holder of the lock. Blocking."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def runs(self) -> list[RedriveFolder]:
        """All runs, the oldest first."""
        with translated(self.path):
            plans = sorted(self.path.glob("*/plan.json"))
        return [RedriveFolder(each.parent) for each in plans]

    def unfinished(self, plan: Plan) -> RedriveFolder | None:
        """The run of this very plan that was cut short, if there is one."""
        for run in reversed(self.runs()):
            if run.has_records and not run.is_done and run.plan() == plan:
                return run
        return None

    def new_run(self, plan: Plan, now_s: float) -> RedriveFolder:
        """A folder for a new run. What was cut short before anything was sent is removed."""
        for run in self.runs():
            if not run.has_records:
                run.remove()
        moment = datetime.fromtimestamp(now_s, UTC).strftime("%Y%m%dT%H%M%S")
        run = RedriveFolder(self.path / f"{moment}-{new_id()}")
        with translated(run.path):
            run.path.mkdir(mode=0o700)
            sync(self.path)
        _write(run.path / "plan.json", attrs.asdict(plan))
        return run

    def sent_before(self, but: RedriveFolder) -> dict[str, float | None]:
        """What other runs have sent and not removed, and when: it may still be in the dead-letter
        queue.
        """
        unremoved: dict[str, float | None] = {}
        for run in self.runs():
            if run != but:
                known = RecordedProgress()
                known.read(run.path)
                unremoved |= {entry: known.sent_at_s(entry) for entry in known.unremoved}
        return unremoved


def default_folder(plan: Plan) -> Path:
    """Where the runs of a queue are kept by default."""
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
        foreign = [each.name for each in path.iterdir() if each.name not in ("lock", "queue.json")]
        if foreign:
            raise ConfigurationError(
                "--run", str(path), f"holds {foreign[0]!r}; name a new or empty folder"
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


# Plan: what a redrive is asked to do. The same plan again goes on with an unfinished run.

_SAYS_WHERE = ("endpoint", "owner", "profile", "vhost")
"""Of a gateway URL's query: what tells one broker from another."""


@attrs.frozen(kw_only=True)
class Plan:
    """Which dead letters go where."""

    gateway: str
    """The broker, without secrets: `place_of` makes it of a URL."""
    queue: str
    target: str
    where: str
    """A predicate in SQL over the columns of `columns.VISIBLE`."""
    limit: int | None = None
    """The most to send, the longest rejected first; None for all."""

    def __attrs_post_init__(self) -> None:
        if not self.queue.strip():
            raise ConfigurationError("QUEUE", self.queue, "name the dead-letter queue")
        if not self.target.strip():
            raise ConfigurationError("--to", self.target, "name the queue to send to")
        if self.queue == self.target:
            raise ConfigurationError(
                "--to", self.target, "this is the dead-letter queue itself; name another queue"
            )
        if not self.where.strip():
            raise ConfigurationError("--where", self.where, "say which, or TRUE for all")
        if not all(map(_is_text, (self.queue, self.target, self.where))):
            said = ascii((self.queue, self.target, self.where))
            raise ConfigurationError("redrive", said, "write queues and condition in UTF-8")
        if self.limit is not None and self.limit < 1:
            raise ConfigurationError("--limit", self.limit, "use 1 or more")

    @property
    def source_id(self) -> str:
        """Eight characters that tell this dead-letter queue from all others."""
        return hashlib.sha256(f"{self.gateway}\0{self.queue}".encode()).hexdigest()[:8]


def _is_text(given: str) -> bool:
    """Whether it can be written: bytes of the command line that are no UTF-8 cannot."""
    try:
        given.encode()
    except UnicodeEncodeError:
        return False
    return True


def place_of(url: str) -> str:
    """Where a gateway is, without secrets and without what only tunes it."""
    try:
        query = parse_qsl(urlsplit(url).query)
    except ValueError:
        return without_secrets(url)
    kept = urlencode(sorted((name, value) for name, value in query if name in _SAYS_WHERE))
    return f"{without_secrets(url)}?{kept}" if kept else without_secrets(url)


# Record: what was sent and removed, durably, one file a process, and read by all of them.
#
# | line                               | written                    | means                     |
# |------------------------------------|----------------------------|---------------------------|
# | `{"sending": 7, "entries": […]}`   | before a send              | these may have been sent  |
# | `{"sent": 7, "not": […], "at": …}` | after it, before a removal | these were, but for those |
# | `{"removed": […]}`                 | after their removal        | nothing is left to do     |
# | `{"refused": […]}`                 | after a send               | the target refused them   |
#
# A process that dies leaves half a line at most, and no other one goes on writing that file.

SUFFIX = ".record"


class RecordedProgress:
    """What the records of a folder say, as far as they have been read. Blocking."""

    def __init__(self) -> None:
        self.sent: set[str] = set()
        self.removed: set[str] = set()
        self.refused: set[str] = set()
        self._begun: dict[tuple[Path, int], list[str]] = {}
        self._read_to: dict[Path, int] = {}
        self._fresh: list[str] = []
        self._started: list[str] = []
        self._sent_at_s: dict[str, float] = {}

    @property
    def unremoved(self) -> set[str]:
        """Entries that were sent and, as far as is known, are still in the dead-letter queue."""
        return self.sent - self.removed

    @property
    def in_doubt(self) -> set[str]:
        """Entries whose send was begun by a process that did not say how it ended."""
        begun = {entry for entries in self._begun.values() for entry in entries}
        return begun - self.sent

    def read(self, folder: Path, *, but: Path | None = None) -> None:
        """Take in what has been written to the records of a folder since the last time, without
        the one that the reader writes itself.
        """
        with translated(folder):
            for path in sorted(folder.glob(f"*{SUFFIX}")):
                if path != but:
                    self._read_file(path)

    def sent_at_s(self, entry: str) -> float | None:
        """When it was recorded as sent, until it is removed; None when unknown."""
        return self._sent_at_s.get(entry)

    def note_sent(self, entries: Iterable[str], at_s: float | None) -> None:
        """Learn what the reader itself has sent, and when that was recorded."""
        new = [entry for entry in entries if entry not in self.sent]
        self.sent.update(new)
        if at_s is not None:
            self._sent_at_s |= dict.fromkeys(new, at_s)

    def note_removed(self, entries: Iterable[str]) -> None:
        """Learn what the reader itself has removed."""
        new = [entry for entry in entries if entry not in self.removed]
        self.removed.update(new)
        for entry in new:
            self._sent_at_s.pop(entry, None)
        self._fresh += new

    def note_refused(self, entries: Iterable[str]) -> None:
        """Learn what the reader itself could not send."""
        new = [entry for entry in entries if entry not in self.refused]
        self.refused.update(new)
        self._fresh += new

    def take_fresh(self) -> list[str]:
        """What was removed or refused since the last call."""
        fresh, self._fresh = self._fresh, []
        return fresh

    def take_started(self) -> list[str]:
        """What others have begun to send since the last call."""
        started, self._started = self._started, []
        return started

    def _read_file(self, path: Path) -> None:
        at = self._read_to.get(path, 0)
        if os.stat(path).st_size == at:
            return
        with path.open("rb") as file:
            file.seek(at)
            data = file.read()
        # What has no end yet is being written, or never will be.
        whole = data[: data.rfind(b"\n") + 1]
        self._read_to[path] = at + len(whole)
        for line in whole.splitlines():
            self._take(path, _parsed(line, path))

    def _take(self, path: Path, line: dict[str, Any]) -> None:
        match line:
            case {"sending": int(batch), "entries": list(entries)}:
                self._begun[path, batch] = entries
                self._started += entries
            case {"sent": int(batch), "not": list(failed)}:
                sent = set(self._begun.pop((path, batch), ())) - set(failed)
                self.note_sent(sent, line.get("at"))
            case {"removed": list(entries)}:
                self.note_removed(entries)
            case {"refused": list(entries)}:
                self.note_refused(entries)


class RedriveRecord:
    """The record of this process: a new file in the run's folder. Blocking; for one thread.

    Each call returns when its line is on the disk; `StorageFailed` when it is not, and then
    nothing more may be sent.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / f"{new_id()}{SUFFIX}"
        self._batch = 0
        with translated(self.path):
            self._fd = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o600)
            sync(folder)

    def sending(self, entries: Sequence[str]) -> int:
        """These are about to be sent; the number is for `sent`."""
        self._batch += 1
        self._append({"sending": self._batch, "entries": list(entries)})
        return self._batch

    def sent(self, batch: int, failed: Collection[str], at_s: float) -> None:
        """The target has them, but for those that failed, as is known at this moment."""
        # Short on purpose: on a full disk it finds room where a list of entries would not.
        self._append({"sent": batch, "not": sorted(failed), "at": at_s})

    def removed(self, entries: Iterable[str]) -> None:
        """They have left the dead-letter queue. May be lost in a crash: then it is tried again."""
        self._append({"removed": list(entries)}, is_urgent=False)

    def refused(self, entries: Iterable[str]) -> None:
        """The target will not have them. May be lost in a crash: then they are tried again."""
        self._append({"refused": list(entries)}, is_urgent=False)

    def close(self) -> None:
        """Let go of the file."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def _append(self, line: dict[str, Any], *, is_urgent: bool = True) -> None:
        data = msgspec.json.encode(line) + b"\n"
        with translated(self.path):
            written = os.write(self._fd, data)
            if written < len(data):
                raise StorageFailed(str(self.path), "the disk is full; free some disk space")
            if is_urgent:
                os.fsync(self._fd)


def _parsed(line: bytes, path: Path) -> dict[str, Any]:
    try:
        parsed = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise StorageFailed(
            str(path),
            f"is damaged ({error}); restore it from a copy: without it, messages that "
            "were sent would be sent again",
        ) from None
    return parsed if isinstance(parsed, dict) else {}


# Counts: how far a redrive has come. Pure.


@attrs.frozen(kw_only=True)
class RedriveCounts:
    """What became of the dead letters that one consumer received."""

    sent: int = 0
    """Sent to the target, and recorded."""
    removed: int = 0
    """Removed from the dead-letter queue, those that an earlier run had sent included."""
    repeated: int = 0
    """Of those sent: how many were sent again because a send before had no answer. They are in
    the target twice at most, and once where it de-duplicates."""
    refused: int = 0
    """Not taken by the target; they are in the dead-letter queue."""
    held: int = 0
    """Not selected: received, and handed back untouched."""
    lost_leases: int = 0
    """Leases that ran out while held; the broker delivers those messages again."""
    first_refusal: str = ""

    def __add__(self, other: RedriveCounts) -> RedriveCounts:
        return RedriveCounts(
            **{
                field.name: getattr(self, field.name) + getattr(other, field.name)
                for field in attrs.fields(RedriveCounts)
                if field.name != "first_refusal"
            },
            first_refusal=self.first_refusal or other.first_refusal,
        )


# End: when a redrive has met everything that it can meet. Pure.
#
# | left to do | nothing came for       | others hold    | it is over                            |
# |------------|------------------------|----------------|---------------------------------------|
# | nothing    |                        |                | yes                                   |
# | something  | less than two looks    |                | no                                    |
# | something  | two looks              | nothing        | yes, but for a run that was cut short |
# | something  | ten seconds            | nothing        | yes                                   |
# | something  | a lease and a bit more | whatever       | yes                                   |

_LOOKS = 2
_SURE_S = 10.0
"""Brokers only estimate what is in flight, and learn of it late."""
_BIT_MORE_S = 5.0


@attrs.frozen(kw_only=True)
class Silence:
    """How long nothing has come, and what may still be held elsewhere."""

    look_count: int = 0
    since_s: float = 0.0
    held_elsewhere: int | None = None
    """None when the broker does not say."""


def is_over(left: int, silence: Silence, *, lease_s: float, is_resumed: bool) -> bool:
    """Whether to stop looking for what is left."""
    if left <= 0:
        return True
    if silence.look_count < _LOOKS:
        return False
    if silence.since_s >= lease_s + _BIT_MORE_S:
        return True
    if silence.held_elsewhere != 0:
        return False
    return not is_resumed or silence.since_s >= _SURE_S


def lease_for(held_count: int) -> float:
    """How long a lease should be, in seconds, when so many messages are held to the end.

    Each is extended twice a lease: with longer ones, many can be kept. After a crash the next run
    waits that long at worst.
    """
    return float(min(3_600, max(30, held_count // 100)))
