"""Journal: where rows wait, durably, until they are rolled into Parquet files.

Each process has its own, beside a lock that dies with it. Rows are kept in batches, as they came;
a batch is never changed, and its number is never used again, so a range of numbers says which
rows a file holds. The range is written down before the file is: whoever repeats a roll that was
cut short makes the very same file again.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, Self

import msgspec

from ...errors import StorageFailed
from ...ids import new_id
from ..file_lock import FileLock
from .row_store import translated
from .rows import encodable
from .schema import Row
from .sqlite_file import FileFormat, check_presence, open_file, snapshot, transaction

SUFFIX = ".db"
LOCK_SUFFIX = ".lock"
_FORMAT = FileFormat(
    application_id=0x504D504A,
    version=1,
    tables=(
        "CREATE TABLE batches (seq INTEGER PRIMARY KEY AUTOINCREMENT,"
        " row_count INTEGER NOT NULL, rows BLOB NOT NULL)",
        "CREATE TABLE roll (first INTEGER NOT NULL, last INTEGER NOT NULL)",
    ),
)
_ROWS_A_BATCH = 2_000
"""So that nobody who reads needs more than that in memory at once."""
_decoder = msgspec.msgpack.Decoder(list[Row])


class Range(NamedTuple):
    """Batches that belong into one roll, first and last included."""

    first: int
    last: int


class Journal:
    """An open journal, whose lock this process holds. Blocking; for one thread."""

    def __init__(self, path: Path, lock: FileLock) -> None:
        self.path = path
        self._lock = lock
        self._connection = open_file(path, _FORMAT)
        with translated(path):
            self._stat = os.stat(path)
            [count] = self._connection.execute("SELECT total(row_count) FROM batches").fetchone()
        self.row_count = int(count)
        """Rows that wait."""

    @classmethod
    def create(cls, folder: Path) -> Self:
        """A new, empty one in a folder that is there."""
        while True:
            journal = cls.take(folder / f"{new_id()}{SUFFIX}")
            # None when another process, tidying up, took the lock in the moment it was made.
            if journal is not None:
                return journal

    @classmethod
    def take(cls, path: Path) -> Self | None:
        """The journal at `path`; None while another process lives that writes it."""
        lock = FileLock(path.with_suffix(LOCK_SUFFIX))
        with translated(path):
            if not lock.try_acquire():
                return None
        try:
            return cls(path, lock)
        except BaseException:
            lock.release()
            raise

    @property
    def writer(self) -> str:
        """Whose rows these are: it stands in the names of the files they become."""
        return self.path.stem

    def append(self, rows: Sequence[Row]) -> None:
        """Write all of these durably, or nothing."""
        chunks = [rows[at : at + _ROWS_A_BATCH] for at in range(0, len(rows), _ROWS_A_BATCH)]
        batches = [(len(chunk), _encode(chunk)) for chunk in chunks]
        with transaction(self._connection, self.path):
            self._connection.executemany(
                "INSERT INTO batches (row_count, rows) VALUES (?, ?)", batches
            )
        check_presence(self.path, self._stat)
        self.row_count += len(rows)

    def plan(self, most_rows: int) -> Range | None:
        """The range to roll next: the one begun before, or the oldest rows; None without any."""
        with transaction(self._connection, self.path):
            begun = self._connection.execute("SELECT first, last FROM roll").fetchone()
            if begun is not None:
                return Range(*begun)
            planned = self._oldest(most_rows)
            if planned is not None:
                self._connection.execute("INSERT INTO roll VALUES (?, ?)", planned)
        return planned

    def rows(self, range_: Range) -> Iterator[list[Row]]:
        """The rows of a range, batch by batch, in their order."""
        with translated(self.path):
            for [blob] in self._connection.execute(
                "SELECT rows FROM batches WHERE seq BETWEEN ? AND ? ORDER BY seq", range_
            ):
                yield _decode(blob, self.path)

    def forget(self, range_: Range) -> None:
        """Remove rows that are in their files, durably."""
        connection = self._connection
        with transaction(connection, self.path):
            connection.execute("DELETE FROM batches WHERE seq BETWEEN ? AND ?", range_)
            connection.execute("DELETE FROM roll")
            [count] = connection.execute("SELECT total(row_count) FROM batches").fetchone()
        self.row_count = int(count)

    def close(self, *, removing: bool = False) -> None:
        """Let go, so that others may take it; or remove it, when nothing is left in it."""
        with translated(self.path):
            try:
                self._connection.close()
                if removing:
                    self.path.unlink(missing_ok=True)
                    for companion in ("-wal", "-shm"):
                        self.path.with_name(f"{self.path.name}{companion}").unlink(missing_ok=True)
            finally:
                self._lock.release(removing=removing)

    def _oldest(self, most_rows: int) -> Range | None:
        first = last = None
        count = 0
        for seq, row_count in self._connection.execute(
            "SELECT seq, row_count FROM batches ORDER BY seq"
        ):
            if first is not None and count + row_count > most_rows:
                break
            first, last = first or seq, seq
            count += row_count
        return None if first is None or last is None else Range(first, last)


@contextmanager
def waiting_rows(path: Path) -> Iterator[Iterator[tuple[int, list[Row]]]]:
    """What waits in a journal of any process at this moment, batch by batch, with its number."""
    with snapshot(path, _FORMAT) as connection:
        yield _batches(connection, path) if _has_batches(connection) else iter(())


def _batches(connection: sqlite3.Connection, path: Path) -> Iterator[tuple[int, list[Row]]]:
    with translated(path):
        for seq, blob in connection.execute("SELECT seq, rows FROM batches ORDER BY seq"):
            yield seq, _decode(blob, path)


def _has_batches(connection: sqlite3.Connection) -> bool:
    found = connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'batches'").fetchone()
    return found is not None


def _encode(rows: Sequence[Row]) -> bytes:
    try:
        return msgspec.msgpack.encode(rows)
    except UnicodeEncodeError:
        return msgspec.msgpack.encode(encodable(rows))


def _decode(blob: bytes, path: Path) -> list[Row]:
    try:
        return _decoder.decode(blob)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise StorageFailed(
            str(path), f"is damaged ({error}); restore it from a copy, or move it away"
        ) from None
