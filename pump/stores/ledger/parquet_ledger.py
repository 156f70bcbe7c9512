"""A ledger in Parquet files by day, for whatever reads such folders: Spark, DuckDB, pandas.

A row is first appended to this process's journal, durably, and later rolled with others into a
file. Crash where it may, a row is in the journal, or in a file, or in both for a moment; and then
the next roll makes the same file again before the journal forgets it.
"""

from __future__ import annotations

import os
import re
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import date, timedelta
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import NamedTuple, Self

import attrs
import msgspec

from ...errors import ConfigurationError, StorageFailed
from ...message import new_id
from ...observability import vocabulary
from ...observability.log import get_logger
from ..file_lock import FileLock
from .buffered_ledger import DEFAULT_BUFFERING, BufferedLedger, Buffering
from .rows import Row, encodable, is_damaged, is_passing, translated
from .sqlite_ledger import FileFormat, check_presence, open_file, snapshot, transaction

_log = get_logger("pump.ledger")


class ParquetLedger(BufferedLedger):
    """Rolling Parquet files below `folder`, one sub-folder a UTC day.

    A file is made of at most about `roll_rows` rows, and rows wait for it in the journal for at
    most `roll_every`. Days that ended more than `keep` ago are removed; None keeps them for
    ever. `detail=False` leaves the texts of errors out, which may quote a body. Several
    processes of one machine may write one folder. Needs `pip install 'pumphouse[ledger]'`.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        roll_rows: int = 100_000,
        roll_every: timedelta = timedelta(minutes=15),
        keep: timedelta | None = None,
        detail: bool = True,
        buffering: Buffering = DEFAULT_BUFFERING,
    ) -> None:
        path = Path(folder)
        options = RollOptions(roll_rows=roll_rows, roll_every=roll_every, keep=keep)
        super().__init__(str(path), partial(ParquetStore, path, options), buffering, detail=detail)
        self._folder = path
        self._options = options

    @property
    def folder(self) -> Path:
        """Where the files are."""
        return self._folder

    def at(self, folder: Path) -> ParquetLedger:
        """One with the same settings in another folder."""
        return ParquetLedger(
            folder,
            roll_rows=self._options.roll_rows,
            roll_every=self._options.roll_every,
            keep=self._options.keep,
            detail=self.has_detail,
            buffering=self._buffering,
        )


@attrs.frozen(kw_only=True)
class RollOptions:
    """When rows become files, and for how long files are kept."""

    roll_rows: int
    roll_every: timedelta
    keep: timedelta | None

    def __attrs_post_init__(self) -> None:
        if self.roll_rows < 1:
            raise ConfigurationError("ParquetLedger.roll_rows", self.roll_rows, "use 1 or more")
        if self.roll_every <= timedelta(0):
            raise ConfigurationError(
                "ParquetLedger.roll_every", self.roll_every, "use more than zero"
            )
        if self.keep is not None and self.keep < timedelta(days=1):
            raise ConfigurationError(
                "ParquetLedger.keep", self.keep, "use a day or more; whole days are removed"
            )


class ParquetStore:
    """The folder, as its writer sees it."""

    def __init__(self, folder: Path, options: RollOptions) -> None:
        self._folder = folder
        self._options = options
        self._journal: LedgerJournal | None = None
        self._refused: set[Path] = set()

    @property
    def care_every_s(self) -> float:
        return self._options.roll_every.total_seconds()

    def open(self) -> None:
        parquet_module()
        try:
            self._own_journal()
        except StorageFailed as error:
            if not is_passing(error):
                raise

    def append(self, rows: Sequence[Row]) -> bool:
        journal = self._own_journal()
        try:
            journal.append(rows)
        except StorageFailed as error:
            if is_damaged(error):
                self._set_aside(journal, error)
            raise
        return journal.row_count >= self._options.roll_rows

    def care(self, now_s: float) -> None:
        with translated(self._folder):
            try:
                self._roll_all()
            finally:
                # Also when nothing could be rolled: on a full disk this may be what makes room.
                self._forget_days(now_s)

    def _roll_all(self) -> None:
        self._roll_own()
        for path in journals_in(self._folder):
            self._adopt(path)
        for path in stray_locks_in(self._folder):
            lock = FileLock(path)
            if lock.try_acquire():
                lock.release(removing=not path.with_suffix(".db").exists())

    def _forget_days(self, now_s: float) -> None:
        keep = self._options.keep
        if keep is not None:
            # No row is older than 1970, though `keep` may be.
            oldest_us = max(0, round((now_s - keep.total_seconds()) * 1e6))
            remove_days_before(self._folder, day_of(oldest_us))

    def close(self, now_s: float) -> None:
        try:
            self.care(now_s)
        finally:
            journal, self._journal = self._journal, None
            if journal is not None:
                journal.close(removing=not journal.row_count)

    def _own_journal(self) -> LedgerJournal:
        if self._journal is None:
            folder = self._folder / JOURNALS
            with translated(folder):
                folder.mkdir(parents=True, exist_ok=True)
            self._journal = LedgerJournal.create(folder)
        return self._journal

    def _roll_own(self) -> None:
        journal = self._journal
        if journal is None:
            return
        try:
            self._roll(journal)
        except StorageFailed as error:
            if is_damaged(error) and error.path == str(journal.path):
                self._set_aside(journal, error)
            raise

    def _adopt(self, path: Path) -> None:
        """Roll what a process left behind that did not end well."""
        if path in self._refused or (self._journal is not None and path == self._journal.path):
            return
        try:
            journal = LedgerJournal.take(path)
            if journal is None:
                return
            row_count = journal.row_count
            try:
                self._roll(journal)
            finally:
                journal.close(removing=not journal.row_count)
        except StorageFailed as error:
            if is_passing(error) or error.path != str(path):
                raise
            self._refuse(path, error)
        else:
            if row_count:
                _log.info(vocabulary.JOURNAL_ADOPTED, path=str(path), count=row_count)

    def _roll(self, journal: LedgerJournal) -> None:
        temporary = journal.path.with_suffix(TEMPORARY_SUFFIX)
        while (range_ := journal.plan(self._options.roll_rows)) is not None:
            name = file_name(journal.writer, range_)
            for day, batches in _by_day(journal.rows(range_)).items():
                write = partial(parquet_module().write_rows, batches)
                put(self._folder, day, name, write, temporary)
            journal.forget(range_)
        temporary.unlink(missing_ok=True)

    def _set_aside(self, journal: LedgerJournal, error: StorageFailed) -> None:
        self._journal = None
        journal.close()
        self._refuse(journal.path, error)

    def _refuse(self, path: Path, error: StorageFailed) -> None:
        self._refused.add(path)
        _log.error(vocabulary.JOURNAL_REFUSED, path=str(path), error=str(error))


def parquet_module() -> ModuleType:
    """The module that knows pyarrow; `ConfigurationError` names the extra that brings it."""
    try:
        from . import parquet
    except ImportError as error:
        raise ConfigurationError(
            "ledger", "parquet", f"{error}; try: pip install 'pumphouse[ledger]'"
        ) from error
    return parquet


def _by_day(batches: Iterable[list[Row]]) -> dict[date, list[list[Row]]]:
    days: dict[date, list[list[Row]]] = {}
    for rows in batches:
        for day, of_day in _split(rows).items():
            days.setdefault(day, []).append(of_day)
    return days


def _split(rows: list[Row]) -> dict[date, list[Row]]:
    times = [row.time for row in rows]
    first, last = day_of(min(times)), day_of(max(times))
    if first == last:
        return {first: rows}
    days: dict[date, list[Row]] = {}
    for row in rows:
        days.setdefault(day_of(row.time), []).append(row)
    return days


# Layout: what is where in the folder of a Parquet ledger, and how a file comes to be there.
#
#     day=2026-11-16/outcomes-<writer>-<first>-<last>.parquet    the rows of one UTC day
#     _journal/<writer>.db, .lock, .tmp                          what is not rolled yet
#
# Names that begin with `_` or `.` are passed over by readers of such folders.

JOURNALS = "_journal"
TEMPORARY_SUFFIX = ".tmp"
_DAY_US = 86_400_000_000
_FIRST_DAY = date(1970, 1, 1).toordinal()
_DAY_NAME = re.compile(r"day=(\d{4}-\d\d-\d\d)")
_FILE_NAME = re.compile(r"outcomes-([0-9a-f]{32})-(\d{9,})-(\d{9,})\.parquet")


@attrs.frozen
class OutcomeFile:
    """A file of ours, by its name."""

    path: Path
    day: date
    writer: str
    range: Range


def day_of(time_us: int) -> date:
    """The UTC day of a moment."""
    return date.fromordinal(_FIRST_DAY + time_us // _DAY_US)


def file_name(writer: str, range_: Range) -> str:
    """The one name for these rows."""
    return f"outcomes-{writer}-{range_.first:09d}-{range_.last:09d}.parquet"


def journals_in(folder: Path) -> list[Path]:
    """Every journal, of any writer."""
    with translated(folder):
        return sorted((folder / JOURNALS).glob(f"*{SUFFIX}"))


def stray_locks_in(folder: Path) -> list[Path]:
    """Locks without a journal: their process died between making the one and the other."""
    with translated(folder):
        locks = (folder / JOURNALS).glob(f"*{LOCK_SUFFIX}")
        return [lock for lock in locks if not lock.with_suffix(SUFFIX).exists()]


def days_in(folder: Path) -> list[tuple[date, Path]]:
    """The folders of days, oldest first; a link is not ours."""
    found = []
    with translated(folder):
        for path in folder.iterdir() if folder.is_dir() else ():
            day = day_named(path.name)
            if day is not None and path.is_dir() and not path.is_symlink():
                found.append((day, path))
    return sorted(found)


def day_named(name: str) -> date | None:
    """The day that a folder's name says, if it does."""
    match = _DAY_NAME.fullmatch(name)
    with suppress(ValueError):
        return None if match is None else date.fromisoformat(match[1])
    return None


def outcome_file(path: Path, day: date) -> OutcomeFile | None:
    """What the name of a file says, if it is one of ours."""
    match = _FILE_NAME.fullmatch(path.name)
    if match is None:
        return None
    return OutcomeFile(path, day, match[1], Range(int(match[2]), int(match[3])))


def put(folder: Path, day: date, name: str, write: Callable[[Path], None], temporary: Path) -> None:
    """Have `write` write a file that is there, whole and durable, when this returns.

    Until then no reader sees it. What had that name before is replaced.
    """
    day_folder = folder / f"day={day}"
    with translated(day_folder / name):
        if not day_folder.exists():
            day_folder.mkdir(exist_ok=True)
            _sync(folder)
        try:
            write(temporary)
            _sync(temporary)
            os.replace(temporary, day_folder / name)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        _sync(day_folder)


def remove_days_before(folder: Path, day: date) -> None:
    """Remove files of ours of earlier days, and the folders that this leaves empty."""
    for found, day_folder in days_in(folder):
        if found >= day:
            return
        with translated(day_folder):
            for path in _files_in(day_folder):
                if outcome_file(path, found) is not None:
                    path.unlink(missing_ok=True)
            # A foreign file in it, or another process that was faster.
            with suppress(OSError):
                day_folder.rmdir()


def _files_in(folder: Path) -> Iterator[Path]:
    with suppress(FileNotFoundError):
        yield from [path for path in folder.iterdir() if path.is_file()]


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


# Journal: where rows wait, durably, until they are rolled into Parquet files.
#
# Each process has its own, beside a lock that dies with it. Rows are kept in batches, as they came;
# a batch is never changed, and its number is never used again, so a range of numbers says which
# rows a file holds. The range is written down before the file is: to repeat a roll that was
# cut short makes the very same file again.

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
"""So that no reader needs more than that in memory at once."""
_decoder = msgspec.msgpack.Decoder(list[Row])


class Range(NamedTuple):
    """Batches that belong into one roll, first and last included."""

    first: int
    last: int


class LedgerJournal:
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
