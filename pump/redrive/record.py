"""Record: what was sent and removed, durably, one file a process, and read by all of them.

| line                             | written                      | means                          |
|----------------------------------|------------------------------|--------------------------------|
| `{"sending": 7, "entries": […]}` | before a send                | these may have been sent       |
| `{"sent": 7, "not": […], "at": …}` | after it, before any removal | these were, but for those    |
| `{"removed": […]}`               | after their removal          | nothing is left to be done     |
| `{"refused": […]}`               | after a send                 | the target will not have them  |

A process that dies leaves half a line at most, and nobody ever goes on writing that file.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from ..errors import StorageFailed
from ..ids import new_id
from ..stores.ledger.row_store import translated
from .arrow import sync

SUFFIX = ".record"


class Known:
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
        """When it was recorded as sent, until it is removed; None when nobody said."""
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


class Record:
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
