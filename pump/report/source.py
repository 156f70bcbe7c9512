"""Source: the rows of a ledger as files that an engine can read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from datetime import date
from pathlib import Path

import attrs

from ..errors import ConfigurationError, StorageFailed
from ..postgres.settings import PostgresSettings
from ..stores.ledger import parquet_ledger
from ..stores.ledger.parquet_ledger import parquet_module, waiting_rows
from ..stores.ledger.reading import Rolled, locate
from ..stores.ledger.rows import COLUMNS, Row
from ..stores.ledger.sqlite_ledger import FORMAT, snapshot
from ..stores.ledger.tally import OutcomesTable

_ROWS_AT_ONCE = 5_000
_ROWS_A_FILE = 500_000
Skipped = tuple[str, str]
"""A path, and why it was passed over."""


@attrs.frozen(kw_only=True)
class Source:
    """What a report reads. All files have the ledger's own types."""

    files: tuple[Path, ...] = ()
    """Of the ledger itself, where a program that sees its folder can read them."""
    gathered: tuple[Path, ...] = ()
    """Of a scratch folder of this machine, never none: rows that were elsewhere, as in journals."""
    dead_letters: Path | None = None
    """The snapshot of dead-letter queues."""
    scratch: Path
    skipped: tuple[Skipped, ...] = ()


def no_ledger(scratch: Path) -> Source:
    """A source without a row."""
    return Source(gathered=_write([], scratch, "none"), scratch=scratch)


def ledger_source(where: str | Path, scope: ReportScope, scratch: Path) -> Source:
    """The source for a ledger that is there, be it written meanwhile; nothing of it is changed."""
    location = locate(where)
    if not location.may_be_there:
        raise ConfigurationError(
            "ledger",
            str(location.path),
            f"there is no ledger; start one: pump run app:app --ledger {where}",
        )
    if location.postgres is not None:
        return _postgres(location.postgres, scope, scratch)
    if location.is_sqlite:
        return _sqlite(location.path, scope, scratch)
    return _folder(location.path, scope, scratch)


def without_damaged(source: Source) -> Source:
    """The source without the files that cannot be read to their ends."""
    from .parquet_files import verify

    sound: list[Path] = []
    skipped = list(source.skipped)
    for path in source.files:
        try:
            verify(path)
        except StorageFailed as error:
            skipped.append((str(path), error.detail))
        else:
            sound.append(path)
    return attrs.evolve(source, files=tuple(sound), skipped=tuple(skipped))


def _sqlite(path: Path, scope: ReportScope, scratch: Path) -> Source:
    parquet_module()
    with snapshot(path, FORMAT) as connection:
        # A file that was just made may have no table yet.
        found = connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'outcomes'")
        rows = [] if found.fetchone() is None else _table_rows(connection, scope)
        gathered = _write(rows, scratch, "sqlite")
    return Source(gathered=gathered, scratch=scratch)


def _postgres(settings: PostgresSettings, scope: ReportScope, scratch: Path) -> Source:
    from ..stores.ledger.postgres_ledger import postgres_snapshot

    parquet_module()
    with postgres_snapshot(settings) as table:
        gathered = _write(_table_rows(table, scope), scratch, "postgres")
    return Source(gathered=gathered, scratch=scratch)


def _table_rows(table: OutcomesTable, scope: ReportScope) -> Iterator[list[Row]]:
    names = ", ".join(each.name for each in COLUMNS)
    until_us = 2**63 - 1 if scope.until_us is None else scope.until_us
    rows = table.execute(
        f"SELECT {names} FROM outcomes WHERE time >= ? AND time < ?", (scope.since_us, until_us)
    )
    while some := rows.fetchmany(_ROWS_AT_ONCE):
        yield [Row._make(each) for each in some]


def _folder(folder: Path, scope: ReportScope, scratch: Path) -> Source:
    parquet_module()
    gathering = _Gathering(folder, scope, scratch)
    with ExitStack() as stack:
        # The journals first: what is rolled meanwhile is then seen twice, and taken once; the
        # other way round it would not be seen at all.
        journals = list(gathering.open_journals(stack))
        found = list(gathering.find_files())
        rolled = Rolled(found)
        gathered = _write(gathering.waiting(journals, rolled), scratch, "journals")
    return gathering.source(found, gathered)


class _Gathering:
    """Finds out what of a folder is the ledger's, and notes what is not."""

    def __init__(self, folder: Path, scope: ReportScope, scratch: Path) -> None:
        self._folder = folder
        self._scope = scope
        self._scratch = scratch
        self._skipped: list[Skipped] = []

    def open_journals(self, stack: ExitStack) -> Iterator[tuple[Path, _Batches]]:
        for path in parquet_ledger.journals_in(self._folder):
            try:
                yield path, stack.enter_context(waiting_rows(path))
            except StorageFailed as error:
                self._skip(path, error.detail)

    def find_files(self) -> Iterator[tuple[date, Path]]:
        for path in sorted(self._folder.iterdir()):
            if path.name[0] not in "._" and parquet_ledger.day_named(path.name) is None:
                self._skip(path, "is no part of the ledger")
        for day, day_folder in parquet_ledger.days_in(self._folder):
            if self._is_wanted(day):
                for path in _visible_in(day_folder):
                    if path.suffix == ".parquet":
                        yield day, path
                    else:
                        self._skip(path, "is no part of the ledger")

    def waiting(self, journals: list[tuple[Path, _Batches]], rolled: Rolled) -> _Rows:
        for path, batches in journals:
            try:
                for seq, rows in batches:
                    yield [row for row in rows if not rolled.has(path.stem, seq, row)]
            except StorageFailed as error:
                self._skip(path, error.detail)

    def source(self, found: list[tuple[date, Path]], gathered: tuple[Path, ...]) -> Source:
        files, converted = [], []
        for number, (_, path) in enumerate(found):
            to = self._scratch / f"converted-{number}.parquet"
            try:
                if self._is_ours(path, to):
                    files.append(path)
                else:
                    converted.append(to)
            except StorageFailed as error:
                self._skip(path, error.detail)
        return Source(
            files=tuple(files),
            gathered=(*gathered, *converted),
            scratch=self._scratch,
            skipped=tuple(self._skipped),
        )

    def _is_ours(self, path: Path, to: Path) -> bool:
        from .parquet_files import convert, has_our_types

        if has_our_types(path):
            return True
        convert(path, to)
        return False

    def _is_wanted(self, day: date) -> bool:
        scope = self._scope
        is_over = day < parquet_ledger.day_of(scope.since_us)
        return not is_over and (
            scope.until_us is None or day <= parquet_ledger.day_of(scope.until_us)
        )

    def _skip(self, path: Path, why: str) -> None:
        # What has gone meanwhile was rolled, or too old.
        if path.exists():
            self._skipped.append((str(path), why))


_Batches = Iterator[tuple[int, list[Row]]]
_Rows = Iterator[list[Row]]


def _visible_in(folder: Path) -> list[Path]:
    try:
        return sorted(path for path in folder.iterdir() if path.name[0] not in "._")
    except FileNotFoundError:
        return []  # Removed meanwhile: its days were over.


def _write(batches: Iterable[list[Row]], scratch: Path, name: str) -> tuple[Path, ...]:
    """Write the rows into files of the scratch folder; one at least, so that engines find one."""
    paths: list[Path] = []
    some: list[list[Row]] = []

    def put() -> None:
        path = scratch / f"{name}-{len(paths)}.parquet"
        parquet_module().write_rows(some, path)
        paths.append(path)

    for batch in batches:
        if batch:
            some.append(batch)
        if sum(map(len, some)) >= _ROWS_A_FILE:
            put()
            some = []
    if some or not paths:
        put()
    return tuple(paths)


# Scope: which outcomes a report is about, and into how many slots of time they are put.

MAX_BUCKETS = 200
"""So many points at most on a chart, however long the time."""
_LENGTHS_S = (
    *(1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 10_800, 21_600, 43_200),
    *(86_400 * days for days in (1, 2, 7, 14, 30, 90, 365)),
)
_DAY_US = 86_400_000_000


@attrs.frozen(kw_only=True)
class ReportScope:
    """From when (microseconds since 1970) until when, that moment excluded, and of which types."""

    since_us: int = 0
    until_us: int | None = None
    types: tuple[str, ...] = ()


def bucket_length_us(first_us: int, last_us: int) -> int:
    """A round length of time of which no more than `MAX_BUCKETS` lie between the two moments."""
    span_us = max(last_us - first_us, 0)
    for length_s in _LENGTHS_S:
        length_us = length_s * 1_000_000
        # Both ends may lie in the middle of one.
        if span_us // length_us + 2 <= MAX_BUCKETS:
            return length_us
    days = span_us // _DAY_US // (MAX_BUCKETS - 2) + 1
    return days * _DAY_US
