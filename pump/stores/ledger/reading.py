"""Reading a ledger, also while pumps write it. Blocking; nothing is ever changed."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from datetime import date, timedelta
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import SplitResult, parse_qsl, unquote, urlencode, urlsplit, urlunsplit

import attrs

from ...clock import parse_duration
from ...errors import ConfigurationError, StorageFailed
from ...gateway_url import without_secrets
from ...postgres.settings import PostgresSettings
from . import Ledger, parquet_ledger
from .parquet_ledger import ParquetLedger, Range, parquet_module, waiting_rows
from .postgres_ledger import PostgresLedger, postgres_snapshot
from .rows import Row, translated
from .sqlite_ledger import FORMAT, SqliteLedger, snapshot
from .tally import LedgerTally, Query, tally_rows, tally_table

_ROWS_AT_ONCE = 5_000
_Batches = Iterator[tuple[int, list[Row]]]


class LedgerReader(Protocol):
    """A ledger that is there. May raise `StorageFailed`."""

    def oldest_us(self) -> int | None:
        """When its first row was; None when there are none."""

    def tally(self, query: Query) -> LedgerTally:
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

    def tally(self, query: Query) -> LedgerTally:
        tally = LedgerTally()
        with snapshot(self.path, FORMAT) as connection:
            if _has_table(connection):
                tally_table(connection, query, tally)
        return tally


@attrs.frozen
class PostgresReader:
    """Reads the table of a `PostgresLedger`."""

    settings: PostgresSettings

    def oldest_us(self) -> int | None:
        with postgres_snapshot(self.settings) as table:
            [oldest_us] = table.execute("SELECT min(time) FROM outcomes").fetchone()
            return None if oldest_us is None else int(oldest_us)

    def tally(self, query: Query) -> LedgerTally:
        tally = LedgerTally()
        with postgres_snapshot(self.settings) as table:
            tally_table(table, query, tally)
        return tally


@attrs.frozen
class ParquetReader:
    """Reads the folder of a `ParquetLedger`, the rows that wait in journals included."""

    folder: Path

    def oldest_us(self) -> int | None:
        found: list[int] = []
        with ExitStack() as stack:
            for _, batches in self._journals(stack, LedgerTally()):
                # What cannot be read the tally names; the rest is there all the same. All of it:
                # where a clock was set back, the first row is not the oldest.
                with suppress(StorageFailed):
                    for _, rows in batches:
                        found += sorted(row.time for row in rows)[:1]
        for _, day_folder in parquet_ledger.days_in(self.folder):
            in_day = [self._oldest_in(path) for path in _data_files(day_folder)]
            known = [each for each in in_day if each is not None]
            found += known
            if known:
                break
        return min(found, default=None)

    def tally(self, query: Query) -> LedgerTally:
        tally = LedgerTally()
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

    def _journals(self, stack: ExitStack, tally: LedgerTally) -> Iterator[tuple[Path, _Batches]]:
        for path in parquet_ledger.journals_in(self.folder):
            try:
                yield path, stack.enter_context(waiting_rows(path))
            except StorageFailed as error:
                _skip(path, error, tally)

    def _files(self, query: Query, tally: LedgerTally) -> Iterator[tuple[date, Path]]:
        for day, day_folder in parquet_ledger.days_in(self.folder):
            if day >= parquet_ledger.day_of(query.since_us):
                for path in _data_files(day_folder, tally):
                    yield day, path
        with translated(self.folder):
            foreign = [path for path in self.folder.iterdir() if _is_foreign(path)]
        tally.skipped += [(str(path), "is no part of the ledger") for path in sorted(foreign)]

    def _oldest_in(self, path: Path) -> int | None:
        try:
            oldest_us: int | None = parquet_module().oldest_us(path)
        except StorageFailed:
            return None
        return oldest_us

    def _tally_files(
        self, files: list[tuple[date, Path]], query: Query, tally: LedgerTally
    ) -> None:
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

    def _find_failures(
        self, failed: list[tuple[int, Path]], query: Query, tally: LedgerTally
    ) -> None:
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
            file = parquet_ledger.outcome_file(path, day)
            if file is not None:
                self._ranges.setdefault((file.writer, day), []).append(file.range)

    def has(self, writer: str, seq: int, row: Row) -> bool:
        if not self._ranges:
            return False
        ranges = self._ranges.get((writer, parquet_ledger.day_of(row.time)), ())
        return any(first <= seq <= last for first, last in ranges)


def _tally_journal(
    path: Path, batches: _Batches, rolled: Rolled, query: Query, tally: LedgerTally
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


def _data_files(day_folder: Path, tally: LedgerTally | None = None) -> list[Path]:
    try:
        with translated(day_folder):
            paths = sorted(path for path in day_folder.iterdir() if path.name[0] not in "._")
    except StorageFailed:
        return []  # Removed meanwhile: its days were over.
    if tally is not None:
        others = [path for path in paths if path.suffix != ".parquet"]
        tally.skipped += [(str(path), "is no part of the ledger") for path in others]
    return [path for path in paths if path.suffix == ".parquet"]


def _is_foreign(path: Path) -> bool:
    return path.name[0] not in "._" and parquet_ledger.day_named(path.name) is None


def _skip(path: Path, error: StorageFailed, tally: LedgerTally) -> None:
    # What has gone meanwhile was rolled, or too old.
    if path.exists():
        tally.skipped.append((str(path), error.detail))


# Locating: ledgers by path or URL, for the command line and for configuration.
#
# A path that ends in `.db` or `.sqlite`, or is a file, is SQLite; any other is a folder of Parquet.
# `sqlite://` and `parquet://` say it outright. They and `postgres://` take `?keep=30d` and
# `?detail=no`.

DEFAULT_FILE = Path(".pumphouse/ledger.db")
DEFAULT_FOLDER = Path(".pumphouse/ledger")
_SQLITE_SUFFIXES = (".db", ".sqlite", ".sqlite3")
_TRUTHS = {"yes": True, "true": True, "1": True, "no": False, "false": False, "0": False}
_OWN_OPTIONS = ("keep", "detail")


@attrs.frozen(kw_only=True)
class Location:
    """Where a ledger is, of which kind, and what was said about it."""

    path: Path = Path()
    is_sqlite: bool = False
    postgres: PostgresSettings | None = None
    """The database; then there is no path."""
    keep: timedelta | None = None
    detail: bool = True

    @property
    def may_be_there(self) -> bool:
        """False where a look at the disk tells that there is no ledger."""
        return self.postgres is not None or self.path.exists()

    @property
    def shown(self) -> str:
        """How to call it: no secrets in it."""
        return str(self.path) if self.postgres is None else self.postgres.target


def ledger_from(where: str | Path) -> Ledger:
    """The ledger that a path or a URL names; `ConfigurationError` when it names none.

    `sqlite:///var/lib/shop/ledger.db`, `parquet:///var/lib/shop/ledger?keep=90d`,
    `postgres://host/database`, or a path. Two slashes begin a relative path: `parquet://ledger`.
    """
    location = locate(where)
    keep, detail = location.keep, location.detail
    if location.postgres is not None:
        return PostgresLedger(location.postgres, keep=keep, detail=detail)
    kind = SqliteLedger if location.is_sqlite else ParquetLedger
    return kind(location.path, keep=keep, detail=detail)


def reader_from(where: str | Path) -> LedgerReader:
    """What reads the ledger that a path or a URL names."""
    location = locate(where)
    if location.postgres is not None:
        return PostgresReader(location.postgres)
    return SqliteReader(location.path) if location.is_sqlite else ParquetReader(location.path)


def locate(where: str | Path) -> Location:
    """Tell path and kind of a ledger that may not be there yet."""
    text = str(where)
    scheme, separator, _ = text.partition("://")
    if isinstance(where, Path) or not separator:
        path = Path(text)
        is_sqlite = _is_sqlite(path)
        return Location(path=path, is_sqlite=is_sqlite)
    if scheme not in ("sqlite", "parquet", "postgres", "postgresql"):
        remedy = "use a path, sqlite:///file, parquet:///folder or postgres://host/database"
        raise ConfigurationError("ledger", without_secrets(text), remedy)
    shown = text if scheme in ("sqlite", "parquet") else without_secrets(text)
    try:
        parts = urlsplit(text)
    except ValueError as error:
        raise ConfigurationError("ledger", shown, f"this is no URL: {error}") from None
    if shown is not text:
        return _in_postgres(parts, shown)
    path = Path(unquote(f"{parts.netloc}{parts.path}"))
    if path == Path():
        raise ConfigurationError("ledger", text, f"name a path behind {scheme}://")
    return Location(path=path, is_sqlite=scheme == "sqlite", **_options(text, parts.query))


def _in_postgres(parts: SplitResult, shown: str) -> Location:
    given = parse_qsl(parts.query, keep_blank_values=True)
    own = urlencode([each for each in given if each[0] in _OWN_OPTIONS])
    others = urlencode([each for each in given if each[0] not in _OWN_OPTIONS])
    settings = PostgresSettings.from_url(urlunsplit(parts._replace(query=others)))
    return Location(postgres=settings, **_options(shown, own))


def _is_sqlite(path: Path) -> bool:
    # A name that is too long, or below what may not be read, is told of when it is opened.
    with suppress(OSError):
        if path.exists():
            return path.is_file()
    return path.suffix.lower() in _SQLITE_SUFFIXES


def _options(url: str, query: str) -> dict[str, Any]:
    options: dict[str, Any] = {}
    for name, value in parse_qsl(query, keep_blank_values=True):
        if name == "keep":
            options["keep"] = _keep(url, value)
        elif name == "detail" and value.lower() in _TRUTHS:
            options["detail"] = _TRUTHS[value.lower()]
        else:
            raise ConfigurationError(
                "ledger", url, f"{name}={value} is not known here; use keep=30d or detail=no"
            )
    return options


def _keep(url: str, value: str) -> timedelta:
    try:
        return parse_duration(value)
    except ValueError as error:
        raise ConfigurationError("ledger", url, str(error)) from None
