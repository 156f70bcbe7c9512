"""Spill: where a rejected message waits when its queue cannot be reached (T1)."""

from __future__ import annotations

import asyncio
import os
import re
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Protocol, TypeVar

import attrs

from ..errors import MappingError, StorageFailed
from ..message import Message, new_id
from ..observability import vocabulary
from ..observability.log import get_logger
from ..tasks import in_thread
from .packing import corrupted, is_checked, pack_checked, unpack, what_changed

_log = get_logger("pump.spill")
_T = TypeVar("_T")
_MOUNTS = Path("/proc/self/mountinfo")
_LAYERED = frozenset({"overlay", "overlayfs", "aufs", "fuse-overlayfs", "fuse.fuse-overlayfs"})
_IN_MEMORY = frozenset({"tmpfs", "ramfs", "rootfs", "devtmpfs"})
_EMPTY_DIR = "/kubernetes.io~empty-dir/"
_SCHEMA = """
CREATE TABLE IF NOT EXISTS spilled (
    id TEXT PRIMARY KEY,
    destination TEXT NOT NULL,
    spilled_at_s REAL NOT NULL,
    claimed_until_s REAL NOT NULL DEFAULT 0,
    message BLOB NOT NULL
)
"""


@attrs.frozen(kw_only=True)
class SpilledMessage:
    """An enriched copy on its way to a queue that could not be reached."""

    message: Message
    destination: str
    spilled_at_s: float
    id: str = attrs.field(factory=new_id)


class SpillStore(Protocol):
    """Keeps spilled messages durably. Every method may raise `StorageFailed`."""

    async def put(self, spilled: SpilledMessage) -> None:
        """Return once the message is durable."""

    async def claim(self, *, now_s: float, lease_s: float, most: int) -> Sequence[SpilledMessage]:
        """The oldest ones that no other process is sending, now ours until the lease ends."""

    async def remove(self, ids: Sequence[str]) -> None:
        """Forget messages that were sent."""

    async def all(self) -> Sequence[SpilledMessage]:
        """Everything that waits, oldest first."""

    async def count(self) -> int:
        """How many wait, those included that are being sent."""


class MemorySpill:
    """A spill that lasts as long as its process; for tests."""

    def __init__(self) -> None:
        self._spilled: dict[str, SpilledMessage] = {}

    async def put(self, spilled: SpilledMessage) -> None:
        self._spilled[spilled.id] = spilled

    async def claim(self, *, now_s: float, lease_s: float, most: int) -> Sequence[SpilledMessage]:
        return list(self._spilled.values())[:most]

    async def remove(self, ids: Sequence[str]) -> None:
        for id_ in ids:
            self._spilled.pop(id_, None)

    async def all(self) -> Sequence[SpilledMessage]:
        return list(self._spilled.values())

    async def count(self) -> int:
        return len(self._spilled)


class SqliteSpill:
    """A spill in one SQLite file, shared by the processes of a machine.

    The file is made by the first spill; reading a spill that never happened makes none. Each
    operation opens and closes its own connection: spilling is rare, and a held connection
    would be one more thing to lose.
    """

    def __init__(self, path: Path | str) -> None:
        self._path = Path(path)

    @property
    def path(self) -> Path:
        """The file that holds what was spilled."""
        return self._path

    async def put(self, spilled: SpilledMessage) -> None:
        row = (spilled.id, spilled.destination, spilled.spilled_at_s, pack_checked(spilled.message))

        def insert(connection: sqlite3.Connection) -> None:
            connection.execute(
                "INSERT OR IGNORE INTO spilled (id, destination, spilled_at_s, message)"
                " VALUES (?, ?, ?, ?)",
                row,
            )

        await self._write(insert)

    async def claim(self, *, now_s: float, lease_s: float, most: int) -> Sequence[SpilledMessage]:
        def update(connection: sqlite3.Connection) -> list[SpilledMessage]:
            # One that seems to last for longer was made before the clock was set back.
            connection.execute(
                "UPDATE spilled SET claimed_until_s = ? WHERE claimed_until_s > ?",
                (now_s + lease_s, now_s + lease_s),
            )
            rows = connection.execute(
                "UPDATE spilled SET claimed_until_s = ? WHERE id IN ("
                " SELECT id FROM spilled WHERE claimed_until_s <= ?"
                " ORDER BY spilled_at_s, id LIMIT ?)"
                " RETURNING id, destination, spilled_at_s, message",
                (now_s + lease_s, now_s, most),
            ).fetchall()
            return sorted(readable(rows), key=lambda each: each.spilled_at_s)

        return await self._write(update, if_missing=())

    async def remove(self, ids: Sequence[str]) -> None:
        def delete(connection: sqlite3.Connection) -> None:
            connection.executemany("DELETE FROM spilled WHERE id = ?", [(id_,) for id_ in ids])

        await self._write(delete)

    async def all(self) -> Sequence[SpilledMessage]:
        def select(connection: sqlite3.Connection) -> list[SpilledMessage]:
            rows = connection.execute(
                "SELECT id, destination, spilled_at_s, message FROM spilled"
                " ORDER BY spilled_at_s, id"
            ).fetchall()
            return list(readable(rows))

        return await self._write(select, if_missing=())

    async def count(self) -> int:
        def select(connection: sqlite3.Connection) -> int:
            [count] = connection.execute("SELECT count(*) FROM spilled").fetchone()
            return int(count)

        return await self._write(select, if_missing=0)

    async def _write(
        self, work: Callable[[sqlite3.Connection], _T], *, if_missing: _T | None = None
    ) -> _T:
        # A write under way cannot be called back: when the caller is cancelled, it still ends.
        return await asyncio.shield(in_thread(self._transact, work, if_missing))

    def _transact(self, work: Callable[[sqlite3.Connection], _T], if_missing: _T | None) -> _T:
        if if_missing is not None and not self._path.exists():
            return if_missing
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with closing(sqlite3.connect(self._path, timeout=10)) as connection, connection:
                # FULL, because the original is deleted on the strength of this commit.
                connection.execute("PRAGMA synchronous=FULL")
                connection.execute(_SCHEMA)
                return work(connection)
        except (sqlite3.Error, OSError) as error:
            raise StorageFailed(
                str(self._path), f"the spill store cannot be used: {error}; free or repair it"
            ) from error


def spill_at(where: Path | str) -> SpillStore:
    """The spill in a file, or in the database of a `postgres://` URL."""
    if isinstance(where, str) and where.startswith(("postgres://", "postgresql://")):
        from .postgres_spill import PostgresSpill

        return PostgresSpill(where)
    return SqliteSpill(where)


class PerishableSpill(SqliteSpill):
    """A spill on a file system that would not keep it: it takes no message, so that originals are
    kept, and what is there already is sent on.
    """

    def __init__(self, path: Path | str, danger: str) -> None:
        super().__init__(path)
        self.danger = danger
        self.is_told = False
        """Whether it was said that the place is none."""

    async def put(self, spilled: SpilledMessage) -> None:
        raise StorageFailed(str(self.path), f"takes no message: it lies on {self.danger}")


def perishing(path: Path) -> str | None:
    """What would become of a file there, in words; None where it outlives this process, its
    container and the machine's next start, or where the system does not say.
    """
    try:
        mounts = _MOUNTS.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return None
    return danger_of(mounts, os.path.realpath(path))


def danger_of(mountinfo: str, path: str) -> str | None:
    """The danger of a place, by the kernel's table of mounts (`/proc/self/mountinfo`)."""
    mounts = [mount for line in mountinfo.splitlines() if (mount := _mount_of(line)) is not None]
    holding = [mount for mount in mounts if mount.holds(path)]
    if not holding:
        return None
    # The innermost, and of two on one place the later one.
    return max(reversed(holding), key=lambda mount: len(mount.point)).danger()


@attrs.frozen
class _Mount:
    root: str
    point: str
    kind: str
    options: frozenset[str]

    def holds(self, path: str) -> bool:
        return self.point == "/" or path == self.point or path.startswith(f"{self.point}/")

    def danger(self) -> str | None:
        if self.kind in _LAYERED:
            return f"{self.kind}, a file system that goes with its container"
        if self.kind in _IN_MEMORY:
            return f"{self.kind}, a file system in memory"
        if _EMPTY_DIR in self.root:
            return "an emptyDir volume, which goes with its pod"
        return "a read-only file system" if "ro" in self.options else None


def _mount_of(line: str) -> _Mount | None:
    """A line is `id parent device root point options [tags …] - kind source super-options`."""
    before, _, after = line.partition(" - ")
    head, tail = before.split(" "), after.split(" ")
    if len(head) < 6 or len(tail) < 3:
        return None
    options = frozenset({*head[5].split(","), *tail[2].split(",")})
    return _Mount(_unescaped(head[3]), _unescaped(head[4]), tail[0], options)


def _unescaped(field: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), field)


def _checked(id_: str, packed: bytes) -> Message:
    """What was spilled; with the header `pumpCorrupted` if it has changed on the disk since."""
    message = unpack(packed)
    detail = what_changed(packed) if is_checked(packed) else ""
    if not detail:
        return message
    _log.error(vocabulary.MESSAGE_CORRUPTED, spilled_id=id_, detail=detail)
    return corrupted(message, detail)


def readable(rows: Iterable[tuple[str, str, float, bytes]]) -> Iterator[SpilledMessage]:
    """The messages of rows of a spill; one that cannot be read is left out, and told of."""
    for id_, destination, spilled_at_s, packed in rows:
        try:
            message = _checked(id_, packed)
        except MappingError as error:
            # It stays where it is, for a person to look at, and keeps none of the others back.
            _log.error(vocabulary.SPILL_UNREADABLE, spilled_id=id_, error=str(error))
            continue
        yield SpilledMessage(
            id=id_, destination=destination, spilled_at_s=spilled_at_s, message=message
        )
