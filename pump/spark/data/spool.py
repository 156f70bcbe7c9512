"""Spool: segments of messages on disk, each written once and never changed. Blocking.

    spool.json                          which spool this is, and of which queue
    lock                                held by the one query that writes
    acked                               up to which segment every ack was confirmed
    segments/000000000007-01234.parquet the seventh segment: 1,234 messages

| a segment is | when                            | after a crash                                |
|--------------|---------------------------------|----------------------------------------------|
| written      | its file has a temporary name   | removed: its messages come again             |
| published    | synced and renamed              | part of the spool; its messages may come     |
|              |                                 | again, and are acked then, not spooled       |
| settled      | all its messages are acked      | part of the spool                            |
| removed      | Spark is done with it and with  | gone                                         |
|              | a later one, and time has passed|                                              |
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs
import pyarrow as pa
import pyarrow.parquet as pq

from ...errors import ConfigurationError, StorageFailed
from ...message import new_id
from ...stores.file_lock import FileLock
from .rows import ARROW, NAMES, Spotted, batches

_FORMAT = 1
_SEGMENTS = "segments"
_NAME = re.compile(r"(\d{12})-(\d{5,})\.parquet", re.ASCII)
_TEMPORARY = ".writing"
_KEY = "broker_id"
_STORED = ARROW.append(pa.field(_KEY, pa.string()))


@attrs.frozen(kw_only=True)
class Segment:
    """A segment that is in the spool."""

    number: int
    row_count: int

    @property
    def file_name(self) -> str:
        return f"{self.number:012d}-{self.row_count:05d}.parquet"


@attrs.frozen(kw_only=True)
class SpoolEntry:
    """A message on its way into a segment; `key` tells it from every other one at its broker."""

    spotted: Spotted
    key: str | None


class Spool:
    """The spool of one queue, for the one process that writes it."""

    def __init__(self, folder: Path, queue: str) -> None:
        self.folder = folder
        self.id = ""
        self._queue = queue
        self._lock = FileLock(folder / "lock")
        self._segments: list[Segment] = []

    def open(self) -> bool:
        """Take the spool, and make it if need be; False while another process has it.

        What a crash left half-written is removed: its messages were not acked.
        """
        with translated(self.folder):
            (self.folder / _SEGMENTS).mkdir(parents=True, exist_ok=True)
            if not self._lock.try_acquire():
                return False
            try:
                self._lock.inscribe(f"pid {os.getpid()}\n")
                self.id = self._identity()
                self._remove_unpublished()
                self._segments = sorted(
                    _segments_in(self.folder), key=lambda segment: segment.number
                )
            except BaseException:
                self._lock.release()
                raise
        return True

    def close(self) -> None:
        """Let others have it. Idempotent."""
        self._lock.release()

    @property
    def segments(self) -> Sequence[Segment]:
        """Those that are there, oldest first."""
        return self._segments

    @property
    def last(self) -> int:
        """The number of the newest segment; 0 before there is one."""
        return self._segments[-1].number if self._segments else 0

    def write(self, entries: Sequence[SpoolEntry]) -> Segment:
        """Write the next segment under a temporary name, and return once it is on the disk."""
        segment = Segment(number=self.last + 1, row_count=len(entries))
        path = self._temporary(segment)
        with translated(path), path.open("wb") as file:
            with pq.ParquetWriter(
                file, _STORED, compression="zstd", write_page_checksum=True
            ) as writer:
                start = 0
                for batch in batches(each.spotted for each in entries):
                    part = entries[start : start + batch.num_rows]
                    keys = pa.array([each.key for each in part], type=pa.string())
                    writer.write_batch(
                        pa.RecordBatch.from_arrays([*batch.columns, keys], schema=_STORED)
                    )
                    start += batch.num_rows
            file.flush()
            os.fsync(file.fileno())
        return segment

    def publish(self, segment: Segment) -> None:
        """Make a written segment part of the spool, for good."""
        path = self._path(segment)
        with translated(path):
            os.rename(self._temporary(segment), path)
            _sync(path.parent)
        self._segments.append(segment)

    def note_settled(self, number: int) -> None:
        """Note that all acks up to this segment were confirmed. If the note is lost, the next
        process looks at more segments than it would need to.
        """
        path = self.folder / "acked"
        with translated(path):
            temporary = path.with_suffix(_TEMPORARY)
            temporary.write_text(f"{number}\n")
            os.replace(temporary, path)

    def unsettled_keys(self) -> dict[str, int]:
        """The keys, with their segments, of messages that may not have been acked."""
        settled = self._settled()
        keys: dict[str, int] = {}
        for segment in self._segments:
            if segment.number > settled:
                with translated(self._path(segment)):
                    column = pq.read_table(self._path(segment), columns=[_KEY])[_KEY]
                keys |= {key: segment.number for key in column.to_pylist() if key is not None}
        return keys

    def remove(self, until: int, *, older_than_s: float) -> None:
        """Remove segments up to this one that were written before a moment; never the newest,
        whose number tells the next one's.
        """
        for segment in list(self._segments[:-1]):
            path = self._path(segment)
            with translated(path):
                if segment.number > until or path.stat().st_mtime >= older_than_s:
                    return
                path.unlink(missing_ok=True)
            self._segments.remove(segment)

    def _identity(self) -> str:
        path = self.folder / "spool.json"
        if not path.exists():
            if any(_segments_in(self.folder)):
                raise StorageFailed(str(path), "is missing beside its segments; put it back")
            spool = {"format": _FORMAT, "id": new_id(), "queue": self._queue}
            temporary = path.with_suffix(_TEMPORARY)
            with temporary.open("wb") as file:
                file.write(json.dumps(spool).encode())
                file.flush()
                os.fsync(file.fileno())
            os.rename(temporary, path)
            _sync(self.folder)
        return self._checked(path, path.read_bytes())

    def _checked(self, path: Path, content: bytes) -> str:
        try:
            spool = json.loads(content)
            found, queue, version = str(spool["id"]), spool["queue"], spool["format"]
        except (ValueError, KeyError, TypeError):
            raise StorageFailed(str(path), "cannot be read; name another spool folder") from None
        if version != _FORMAT:
            raise StorageFailed(str(path), f"has format {version}; use the release that wrote it")
        if queue != self._queue:
            raise ConfigurationError(
                "spool", str(self.folder), f"holds messages of queue {queue!r}; name another folder"
            )
        return found

    def _remove_unpublished(self) -> None:
        for path in (self.folder / _SEGMENTS).glob(f"*{_TEMPORARY}"):
            path.unlink(missing_ok=True)

    def _settled(self) -> int:
        try:
            return int((self.folder / "acked").read_text())
        except (FileNotFoundError, ValueError):
            return 0

    def _path(self, segment: Segment) -> Path:
        return self.folder / _SEGMENTS / segment.file_name

    def _temporary(self, segment: Segment) -> Path:
        return self._path(segment).with_suffix(_TEMPORARY)


def read_segment(folder: Path, number: int) -> Iterator[Any]:
    """The record batches of a segment, as they were written; needs no lock.

    `StorageFailed` says so when it is not there, or is not what was written.
    """
    found = [each for each in _segments_in(folder) if each.number == number]
    if not found:
        raise StorageFailed(
            str(folder),
            f"segment {number} is not there: the driver and all executors must see the same "
            f"folder, and `retain` must be longer than a batch may take",
        )
    path = folder / _SEGMENTS / found[0].file_name
    with translated(path), pq.ParquetFile(path, page_checksum_verification=True) as file:
        for group in range(file.num_row_groups):
            for batch in file.read_row_group(group, columns=list(NAMES)).to_batches():
                yield pa.RecordBatch.from_arrays(batch.columns, schema=ARROW)


def _segments_in(folder: Path) -> Iterator[Segment]:
    for name in os.listdir(folder / _SEGMENTS):
        match = _NAME.fullmatch(name)
        if match is not None:
            yield Segment(number=int(match[1]), row_count=int(match[2]))


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def translated(path: Path) -> Iterator[None]:
    """Turn the system's and Arrow's errors into `StorageFailed`."""
    try:
        yield
    except OSError as error:
        why = f"{error.strerror or error}; check the disk, the path and its permissions"
        raise StorageFailed(str(path), why) from error
    except pa.ArrowException as error:
        raise StorageFailed(str(path), f"cannot be read or written ({error})") from error
