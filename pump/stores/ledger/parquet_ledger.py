"""A ledger in Parquet files by day, for whatever reads such folders: Spark, DuckDB, pandas.

A row is first appended to this process's journal, durably, and later rolled with others into a
file. Crash where it may, a row is in the journal, or in a file, or in both for a moment; and then
the next roll makes the same file again before the journal forgets it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from datetime import date, timedelta
from functools import partial
from pathlib import Path
from types import ModuleType

import attrs

from ...errors import ConfigurationError, StorageFailed
from ...observability import vocabulary
from ...observability.log import get_logger
from ..file_lock import FileLock
from . import layout
from .buffered_ledger import DEFAULT_BUFFERING, BufferedLedger, Buffering
from .journal import Journal
from .row_store import is_damaged, is_passing, translated
from .schema import Row

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
        self._journal: Journal | None = None
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
        for path in layout.journals_in(self._folder):
            self._adopt(path)
        for path in layout.stray_locks_in(self._folder):
            lock = FileLock(path)
            if lock.try_acquire():
                lock.release(removing=not path.with_suffix(".db").exists())

    def _forget_days(self, now_s: float) -> None:
        keep = self._options.keep
        if keep is not None:
            # No row is older than 1970, though `keep` may be.
            oldest_us = max(0, round((now_s - keep.total_seconds()) * 1e6))
            layout.remove_days_before(self._folder, layout.day_of(oldest_us))

    def close(self, now_s: float) -> None:
        try:
            self.care(now_s)
        finally:
            journal, self._journal = self._journal, None
            if journal is not None:
                journal.close(removing=not journal.row_count)

    def _own_journal(self) -> Journal:
        if self._journal is None:
            folder = self._folder / layout.JOURNALS
            with translated(folder):
                folder.mkdir(parents=True, exist_ok=True)
            self._journal = Journal.create(folder)
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
            journal = Journal.take(path)
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

    def _roll(self, journal: Journal) -> None:
        temporary = journal.path.with_suffix(layout.TEMPORARY_SUFFIX)
        while (range_ := journal.plan(self._options.roll_rows)) is not None:
            name = layout.file_name(journal.writer, range_)
            for day, batches in _by_day(journal.rows(range_)).items():
                write = partial(parquet_module().write_rows, batches)
                layout.put(self._folder, day, name, write, temporary)
            journal.forget(range_)
        temporary.unlink(missing_ok=True)

    def _set_aside(self, journal: Journal, error: StorageFailed) -> None:
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
    first, last = layout.day_of(min(times)), layout.day_of(max(times))
    if first == last:
        return {first: rows}
    days: dict[date, list[Row]] = {}
    for row in rows:
        days.setdefault(layout.day_of(row.time), []).append(row)
    return days
