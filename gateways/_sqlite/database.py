"""The database file: made whole or not at all, recognised by its header, one writer."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from itertools import chain
from pathlib import Path
from struct import unpack_from
from typing import Any, TypeVar

import aiosqlite
import attrs

from pump.errors import StorageFailed
from pump.stores.opening import let_process_end
from pump.tasks import in_thread, to_the_end

T = TypeVar("T")

PAGE_BYTES = 4096

_HEADER_BYTES = 100
_PLENTY = 2**62
# SQLite writes its log from the start again when it holds so much: a thousand pages, its own
# default, or so little that on a small disk the log stays well below what is kept free of sends.
_LOG_PAGES = 1000
_LEAST_LOG_PAGES = 8
_LOGS_OF_A_DISK = 32
_MAGIC = b"SQLite format 3\x00"


# With six columns, far below SQLite's 32,766 parameters; more rows gained nothing here.
_ROWS_AT_ONCE = 100


@attrs.frozen(kw_only=True)
class Schema:
    """Whose file it is, and what is in a new one."""

    application_id: int
    version: int
    tables: str = attrs.field(repr=False)
    """The statements that make the tables."""


@attrs.define
class Statement:
    """One statement for many rows.

    With `values`, a row of placeholders, the statement ends in VALUES and takes many rows at
    once. Each step of SQLite gives Python's lock away and must win it back from a busy loop,
    so a hundred rows in one step are several times faster than a hundred steps.
    """

    sql: str
    rows: list[Any]
    values: str = ""
    is_free: bool = False
    """Whether it touches rows that no other free run of its group does, so that it makes no
    difference which of them comes first."""

    @property
    def is_one_step(self) -> bool:
        """Whether SQLite does it all in one step, and so wholly or not at all."""
        return 0 < len(self.rows) <= (_ROWS_AT_ONCE if self.values else 1)

    def write(self, connection: sqlite3.Connection) -> None:
        """Execute it."""
        if not self.values:
            connection.executemany(self.sql, self.rows)
            return
        for start in range(0, len(self.rows), _ROWS_AT_ONCE):
            rows = self.rows[start : start + _ROWS_AT_ONCE]
            places = ", ".join([self.values] * len(rows))
            connection.execute(f"{self.sql} {places}", tuple(chain.from_iterable(rows)))


@attrs.frozen(kw_only=True)
class Space:
    """Room for more, of how much."""

    left_bytes: int
    total_bytes: int


class _GroupConnection(sqlite3.Connection):
    """A connection whose `commit` does what it was given to do first.

    aiosqlite hands each call to its thread and back; this way many groups cost one such trip.
    """

    work: Callable[[], object] = int
    presence: Presence | None = None
    file: str = ""
    """The file itself, where its name is a link; its log is beside it."""

    def commit(self) -> None:
        self.work()

    def write(self, group: Sequence[Statement]) -> None:
        """Write all of a group, durably, or nothing."""
        # A single statement is a transaction by itself. Each step gives Python's lock away, and
        # has to win it back from a busy loop: one is better than three. Inside of a transaction
        # that could not even be undone it would wait for a commit that never comes.
        if len(group) == 1 and group[0].is_one_step and not self.in_transaction:
            group[0].write(self)
        elif group:
            self._write_or_undo(group)
        # Afterwards, so that nothing is acknowledged that was written into a removed file.
        if self.presence is not None:
            self.presence.check()

    def _write_or_undo(self, group: Sequence[Statement]) -> None:
        self.execute("BEGIN IMMEDIATE")
        try:
            for run in group:
                run.write(self)
            self.execute("COMMIT")
        except BaseException:
            # After some errors (disk full) SQLite has rolled back already.
            if self.in_transaction:
                self.execute("ROLLBACK")
            raise


class Database:
    """The open file. `sqlite3` runs in aiosqlite's thread, never on the loop."""

    def __init__(
        self,
        path: Path,
        connection: aiosqlite.Connection,
        raw: _GroupConnection,
        max_bytes: int | None = None,
    ) -> None:
        self.path = path
        self._folder = str(path.parent)
        self._connection = connection
        self._raw = raw
        self._max_bytes = max_bytes
        self.space = Space(left_bytes=_PLENTY, total_bytes=_PLENTY)
        """What there was to be written to, when it was last measured."""
        self.is_tight_below = 0
        """With less of the disk left than this, what is free inside of the file is counted, too:
        each question costs a step of SQLite."""

    @classmethod
    async def open(
        cls,
        path: Path,
        schema: Schema,
        *,
        max_bytes: int | None = None,
        companions: Sequence[Path] = (),
    ) -> Database:
        """Open, or make, the file; `StorageFailed` leaves one that is not ours untouched.

        No commit succeeds any more once it, its log or one of its companions, such as the
        lock that keeps others away, is removed or replaced.
        """
        made: list[_GroupConnection | StorageFailed] = []

        def connect() -> sqlite3.Connection:
            try:
                with translate(path):
                    _recognise(path, schema)
                    raw = _connect(path, max_bytes, companions)
            except StorageFailed as error:
                # Raised here, it would leave a thread behind that may outlive the loop.
                made.append(error)
                return sqlite3.connect(":memory:", check_same_thread=False)
            made.append(raw)
            return raw

        connection = aiosqlite.Connection(connect, iter_chunk_size=1000)
        let_process_end(connection)

        async def start() -> None:
            await connection

        try:
            await to_the_end(start(), "pumphouse-opening")
        except asyncio.CancelledError:
            await connection.close()
            raise
        [opened] = made
        if isinstance(opened, StorageFailed):
            await connection.close()
            raise opened
        return cls(path, connection, opened, max_bytes)

    @property
    def is_limited(self) -> bool:
        """Whether its size has a limit of its own."""
        return self._max_bytes is not None

    async def commit(self, group: Sequence[Statement]) -> None:
        """`write` a group, in the thread."""
        await self.in_thread(partial(self.write, group))

    async def in_thread(self, work: Callable[[], object]) -> None:
        """Have something done where it may `write`; nothing else may be under way."""
        self._raw.work = work
        await self._connection.commit()

    def write(self, group: Sequence[Statement]) -> None:
        """Write all of the group, durably, or nothing; blocks.

        `StorageFailed` also when the file was removed or replaced: what it has taken by then
        is lost, and no later commit succeeds.
        """
        try:
            with translate(self.path):
                self._raw.write(group)
        except (ValueError, OverflowError) as error:
            # A text with half a surrogate pair, a number of more than 64 bits.
            raise StorageFailed(str(self.path), f"cannot hold a value: {error}") from error

    def measure(self) -> None:
        """Look how much may still be written, where `write` may be called; blocks."""
        with suppress(OSError, sqlite3.Error):
            disk = os.statvfs(self._folder)
            left, total = disk.f_bavail * disk.f_frsize, disk.f_blocks * disk.f_frsize
            if self._max_bytes is not None or left < self.is_tight_below:
                pages = self._pragma("page_count") * PAGE_BYTES
                free = self._pragma("freelist_count") * PAGE_BYTES
                left = self._room(left, total, pages, free)
                if self._max_bytes is not None:
                    left = min(left, self._max_bytes - pages + free)
                    total = min(total, self._max_bytes)
            self.space = Space(left_bytes=left, total_bytes=total)

    def _room(self, left: int, total: int, pages: int, free: int) -> int:
        """What can be sent, with so much of the disk left. The file does not shrink: what was
        acknowledged makes room inside of it, and what is only in the log so far has yet to find
        its place.
        """
        file, log = map(_size_of, (self._raw.file, f"{self._raw.file}-wal"))
        room = left - max(0, pages - file)
        # Everything is written to the log first, which must be able to reach its full size.
        return room + free if left + log >= 2 * _log_bytes(total) else room

    def _pragma(self, name: str) -> int:
        number: int = self._raw.execute(f"PRAGMA {name}").fetchone()[0]
        return number

    async def rows(self, sql: str) -> Iterable[sqlite3.Row]:
        """Read."""
        with translate(self.path):
            return await self._connection.execute_fetchall(sql)

    async def read(self, read: Callable[[sqlite3.Connection], T]) -> T:
        """Have `read` read whatever it likes, in a thread; nothing else may be under way.

        Cancelled, it ends first: to close a connection that a thread reads from is a crash.
        """
        with translate(self.path):
            return await to_the_end(in_thread(read, self._raw), "pumphouse-reading")

    async def close(self) -> None:
        """Close; the last one to close also folds the log into the file."""
        with translate(self.path):
            await self._connection.close()


def _recognise(path: Path, schema: Schema) -> None:
    """Read the header, without SQLite, so that a file which is not ours stays as it is."""
    if path.is_symlink() and not path.exists():
        raise StorageFailed(
            str(path),
            f"it links to {os.path.realpath(path)}, which is not there; mount or restore that, "
            f"or remove the link",
        )
    if path.exists() and not path.is_file():
        raise StorageFailed(str(path), "this is not a regular file; move it away")
    if not path.exists() or path.stat().st_size == 0:
        # Where a link leads, not in its place.
        _create(Path(os.path.realpath(path)), schema)
        return
    with path.open("rb") as file:
        header = file.read(_HEADER_BYTES)
    if len(header) < _HEADER_BYTES or not header.startswith(_MAGIC):
        raise StorageFailed(
            str(path), "this is not an SQLite file; move it away, or name another folder"
        )
    version, application = unpack_from(">I", header, 60)[0], unpack_from(">I", header, 68)[0]
    if application != schema.application_id:
        raise StorageFailed(
            str(path), "this database is another program's; move it away, or name another folder"
        )
    if version != schema.version:
        raise StorageFailed(
            str(path),
            f"its format is version {version}, this release reads {schema.version}; use the "
            f"release that wrote it, or drain it there first",
        )


def _create(path: Path, schema: Schema) -> None:
    # Under another name first: a crash half-way leaves no half-made database.
    draft = path.with_suffix(".new")
    draft.unlink(missing_ok=True)
    connection = sqlite3.connect(draft)
    try:
        connection.executescript(
            f"PRAGMA application_id = {schema.application_id};"
            f"PRAGMA user_version = {schema.version};"
            f"PRAGMA page_size = {PAGE_BYTES}; {schema.tables}"
        )
        connection.commit()
    finally:
        connection.close()
    os.replace(draft, path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _connect(path: Path, max_bytes: int | None, companions: Sequence[Path]) -> _GroupConnection:
    raw = sqlite3.connect(
        path,
        isolation_level=None,
        factory=_GroupConnection,
        check_same_thread=False,
        cached_statements=2 * _ROWS_AT_ONCE,
    )
    assert isinstance(raw, _GroupConnection)
    try:
        raw.execute("PRAGMA journal_mode = WAL")
        raw.execute("PRAGMA synchronous = FULL")
        _bound_log(raw, path)
        if max_bytes is not None:
            raw.execute(f"PRAGMA max_page_count = {max(1, max_bytes // PAGE_BYTES)}")
        # The first look into the file makes its log.
        raw.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone()
        raw.file = os.path.realpath(path)
        raw.presence = Presence(path, Path(f"{raw.file}-wal"), *companions)
    except BaseException:
        raw.close()
        raise
    return raw


def _log_bytes(disk_bytes: int) -> int:
    pages = disk_bytes // _LOGS_OF_A_DISK // PAGE_BYTES
    return min(_LOG_PAGES, max(_LEAST_LOG_PAGES, pages)) * PAGE_BYTES


def _bound_log(raw: sqlite3.Connection, path: Path) -> None:
    disk = os.statvfs(path.parent)
    log_bytes = _log_bytes(disk.f_blocks * disk.f_frsize)
    raw.execute(f"PRAGMA wal_autocheckpoint = {log_bytes // PAGE_BYTES}")
    # A single large commit may make it longer; it gives the rest back when it starts anew.
    raw.execute(f"PRAGMA journal_size_limit = {2 * log_bytes}")


def _size_of(path: str) -> int:
    try:
        return os.stat(path).st_size
    except FileNotFoundError:
        return 0


# Presence: whether the files that are open are still the ones their names stand for.
#
# A file that was removed, moved or replaced can still be written, and all that is lost when the
# process ends. The system says nothing about it, so code that promises durability has to look.


class Presence:
    """Knows files as they were at first. Once one was missed, that is final: what was
    written meanwhile is nowhere, so going on would mix two histories.
    """

    def __init__(self, *paths: Path) -> None:
        """Raises `OSError` when one is not there already."""
        self._files = {str(path): os.stat(path) for path in paths}
        self._missed = ""

    def check(self) -> None:
        """Raise `StorageFailed` when a file is not there any more, or is another one."""
        if not self._missed:
            self._missed = next((path for path in self._files if not self._is_there(path)), "")
        if self._missed:
            raise StorageFailed(
                self._missed,
                "it was removed or replaced while in use, so nothing can be kept any more; put "
                "it back if you can, then start the program again",
            )

    def _is_there(self, path: str) -> bool:
        try:
            return os.path.samestat(os.stat(path), self._files[path])
        except (FileNotFoundError, NotADirectoryError):
            return False


# SQLite's and the file system's errors in our words.


@contextmanager
def translate(path: Path) -> Iterator[None]:
    """Raise `StorageFailed`, naming the file, for what SQLite or the system raises."""
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        raise storage_failed(path, error) from error


def storage_failed(path: Path, error: Exception) -> StorageFailed:
    """Say what happened to the file and what to do."""
    return StorageFailed(str(path), f"{error}; {_remedy(error)}")


def _remedy(error: Exception) -> str:
    text = str(error).lower()
    if "full" in text or "no space" in text or "too large" in text:
        return "free some disk space, or raise max_bytes; the queue goes on by itself"
    if "malformed" in text or "not a database" in text:
        return "the file is damaged; move it away or restore a copy, then start again"
    if isinstance(error, PermissionError) or "readonly" in text or "unable to open" in text:
        return "make the folder and its files writable for this user"
    if "disk i/o" in text:
        return "the disk refused a write (full, over its quota or limit, or failing)"
    return "nothing was acknowledged; the operation can be tried again"
