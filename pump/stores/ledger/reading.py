"""Reading a ledger, also while pumps write it. Blocking; nothing is ever changed."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from datetime import date
from pathlib import Path
from typing import Protocol

import attrs

from ...errors import StorageFailed
from . import layout
from .journal import Range, waiting_rows
from .parquet_ledger import parquet_module
from .row_store import translated
from .row_tally import tally_rows, tally_table
from .schema import Row
from .sqlite_file import snapshot
from .sqlite_ledger import FORMAT
from .tally import Query, Tally

_ROWS_AT_ONCE = 5_000
_Batches = Iterator[tuple[int, list[Row]]]


class LedgerReader(Protocol):
    """A ledger that is there. May raise `StorageFailed`."""

    def oldest_us(self) -> int | None:
        """When its first row was; None when there are none."""

    def tally(self, query: Query) -> Tally:
        """What its rows come to."""


@attrs.frozen
class SqliteReader:
    """Reads the file of a `SqliteLedger`."""

    path: Path

    def oldest_us(self) -> int | None:
        with snapshot(self.path, FORMAT) as connection:
            if not _has_table(connection):
                return None
            [oldest_us] = connection.execute("SELECT min(time) FROM outcomes").fetchone()
            return None if oldest_us is None else int(oldest_us)

    def tally(self, query: Query) -> Tally:
        tally = Tally()
        with snapshot(self.path, FORMAT) as connection:
            if _has_table(connection):
                tally_table(connection, query, tally)
        return tally


@attrs.frozen
class ParquetReader:
    """Reads the folder of a `ParquetLedger`, the rows that wait in journals included."""

    folder: Path

    def oldest_us(self) -> int | None:
        found: list[int] = []
        with ExitStack() as stack:
            for _, batches in self._journals(stack, Tally()):
                # What cannot be read the tally names; the rest is there all the same. All of it:
                # where a clock was set back, the first row is not the oldest.
                with suppress(StorageFailed):
                    for _, rows in batches:
                        found += sorted(row.time for row in rows)[:1]
        for _, day_folder in layout.days_in(self.folder):
            in_day = [self._oldest_in(path) for path in _data_files(day_folder)]
            known = [each for each in in_day if each is not None]
            found += known
            if known:
                break
        return min(found, default=None)

    def tally(self, query: Query) -> Tally:
        tally = Tally()
        with ExitStack() as stack:
            # The journals first: what is rolled meanwhile is then seen twice, and counted once;
            # the other way round it would not be seen at all.
            journals = list(self._journals(stack, tally))
            files = list(self._files(query, tally))
            self._tally_files(files, query, tally)
            rolled = Rolled(files)
            for path, batches in journals:
                _tally_journal(path, batches, rolled, query, tally)
        return tally

    def _journals(self, stack: ExitStack, tally: Tally) -> Iterator[tuple[Path, _Batches]]:
        for path in layout.journals_in(self.folder):
            try:
                yield path, stack.enter_context(waiting_rows(path))
            except StorageFailed as error:
                _skip(path, error, tally)

    def _files(self, query: Query, tally: Tally) -> Iterator[tuple[date, Path]]:
        for day, day_folder in layout.days_in(self.folder):
            if day >= layout.day_of(query.since_us):
                for path in _data_files(day_folder, tally):
                    yield day, path
        with translated(self.folder):
            strangers = [path for path in self.folder.iterdir() if _is_stranger(path)]
        tally.skipped += [(str(path), "is no part of the ledger") for path in sorted(strangers)]

    def _oldest_in(self, path: Path) -> int | None:
        try:
            oldest_us: int | None = parquet_module().oldest_us(path)
        except StorageFailed:
            return None
        return oldest_us

    def _tally_files(self, files: list[tuple[date, Path]], query: Query, tally: Tally) -> None:
        failed: list[tuple[int, Path]] = []
        for _, path in files:
            try:
                newest_us = parquet_module().tally_file(path, query, tally)
            except StorageFailed as error:
                _skip(path, error, tally)
                continue
            if newest_us is not None:
                failed.append((newest_us, path))
        self._find_failures(failed, query, tally)

    def _find_failures(self, failed: list[tuple[int, Path]], query: Query, tally: Tally) -> None:
        """Look for the newest in the files that can have them, and only there."""
        for newest_us, path in sorted(failed, reverse=True):
            known = tally.failures
            if len(known) >= query.max_failures and known[-1].time >= newest_us:
                return
            try:
                rows = parquet_module().newest_failures(path, query)
            except StorageFailed as error:
                _skip(path, error, tally)
            else:
                tally.saw_failures(rows, query.max_failures)


class Rolled:
    """Which rows of the journals are in files already."""

    def __init__(self, files: list[tuple[date, Path]]) -> None:
        self._ranges: dict[tuple[str, date], list[Range]] = {}
        for day, path in files:
            file = layout.outcome_file(path, day)
            if file is not None:
                self._ranges.setdefault((file.writer, day), []).append(file.range)

    def has(self, writer: str, seq: int, row: Row) -> bool:
        if not self._ranges:
            return False
        ranges = self._ranges.get((writer, layout.day_of(row.time)), ())
        return any(first <= seq <= last for first, last in ranges)


def _tally_journal(
    path: Path, batches: _Batches, rolled: Rolled, query: Query, tally: Tally
) -> None:
    gathered: list[Row] = []
    try:
        for seq, rows in batches:
            gathered += [row for row in rows if not rolled.has(path.stem, seq, row)]
            if len(gathered) >= _ROWS_AT_ONCE:
                tally_rows(gathered, query, tally)
                gathered = []
    except StorageFailed as error:
        _skip(path, error, tally)
    tally_rows(gathered, query, tally)


def _has_table(connection: sqlite3.Connection) -> bool:
    # A file that was just made may have none yet.
    found = connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'outcomes'").fetchone()
    return found is not None


def _data_files(day_folder: Path, tally: Tally | None = None) -> list[Path]:
    try:
        with translated(day_folder):
            paths = sorted(path for path in day_folder.iterdir() if path.name[0] not in "._")
    except StorageFailed:
        return []  # Removed meanwhile: its days were over.
    if tally is not None:
        others = [path for path in paths if path.suffix != ".parquet"]
        tally.skipped += [(str(path), "is no part of the ledger") for path in others]
    return [path for path in paths if path.suffix == ".parquet"]


def _is_stranger(path: Path) -> bool:
    return path.name[0] not in "._" and layout.day_named(path.name) is None


def _skip(path: Path, error: StorageFailed, tally: Tally) -> None:
    # What has gone meanwhile was rolled, or too old.
    if path.exists():
        tally.skipped.append((str(path), error.detail))
