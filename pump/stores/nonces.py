"""Nonces: which encrypted messages were seen, so that a copy of one is not handled again.

A nonce is free, claimed by a holder (the broker's message it arrived on) or done:

| from    | event                            | to      | the caller is told |
|---------|----------------------------------|---------|--------------------|
| free    | claim                            | claimed | True               |
| claimed | claim by its holder (redelivery) | claimed | True               |
| claimed | claim by another (a copy)        | claimed | False              |
| claimed | release by its holder (rejected) | free    | nothing            |
| any     | complete                         | done    | nothing            |
| done    | claim                            | done    | False              |
| any     | its time ends                    | free    | nothing            |

Unlike an inbox's, a claim has no owner that could die: a consumer that receives the message
again is given its nonce again.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol, Self

import aiosqlite

from ..errors import ConfigurationError
from ..observability import vocabulary
from ..observability.log import get_logger
from .claims import ClaimsFile, atomic, path_of_a_file
from .opening import translated

_log = get_logger("pump.crypto")


class NonceMark(NamedTuple):
    """What became of a nonce: done, or else released by its holder."""

    nonce: bytes
    holder: str
    is_done: bool
    until_s: float


class NonceStore(Protocol):
    """Remembers nonces. Every method is atomic, also between processes that share the store, and
    may raise `StorageFailed`. Times are Unix seconds and come from the caller.
    """

    async def claim(self, nonce: bytes, *, holder: str, now_s: float, until_s: float) -> bool:
        """Take the nonce if it is free or the holder's own; it is kept until `until_s`."""

    async def mark(self, marks: Sequence[NonceMark]) -> None:
        """Return once these are recorded, all of them. A second time does no harm."""

    async def aclose(self) -> None:
        """Let go of files and threads; may be called twice, and a later use opens them again."""


class _NonceEntry(NamedTuple):
    holder: str
    is_done: bool
    until_s: float


class MemoryNonces:
    """Nonces for as long as the process lives, and for this process alone.

    Bounded: past `max_count` the oldest are forgotten before their time, which is logged once;
    a replay of those is accepted.
    """

    def __init__(self, *, max_count: int = 1_000_000) -> None:
        if max_count < 1:
            raise ConfigurationError("MemoryNonces.max_count", max_count, "use 1 or more")
        self._max_count = max_count
        # In the order in which they were written, which is the order of expiry.
        self._entries: dict[bytes, _NonceEntry] = {}
        self._has_forgotten = False

    def __len__(self) -> int:
        return len(self._entries)

    async def claim(self, nonce: bytes, *, holder: str, now_s: float, until_s: float) -> bool:
        self._forget(now_s)
        known = self._entries.get(nonce)
        is_alive = known is not None and known.until_s > now_s
        if known is not None and is_alive and (known.is_done or known.holder != holder):
            return False
        self._write(nonce, _NonceEntry(holder, is_done=False, until_s=until_s))
        return True

    async def mark(self, marks: Sequence[NonceMark]) -> None:
        for nonce, holder, is_done, until_s in marks:
            known = self._entries.get(nonce)
            if is_done:
                self._write(nonce, _NonceEntry(holder, is_done=True, until_s=until_s))
            elif known is not None and not known.is_done and known.holder == holder:
                del self._entries[nonce]

    async def aclose(self) -> None:
        """Do nothing: what is remembered stays until the object goes."""

    def _write(self, nonce: bytes, entry: _NonceEntry) -> None:
        self._entries.pop(nonce, None)
        self._entries[nonce] = entry

    def _forget(self, now_s: float) -> None:
        while self._entries:
            nonce, entry = next(iter(self._entries.items()))
            if entry.until_s > now_s:
                if len(self._entries) < self._max_count:
                    break
                self._warn_once()
            del self._entries[nonce]

    def _warn_once(self) -> None:
        if not self._has_forgotten:
            self._has_forgotten = True
            _log.warning(
                vocabulary.NONCES_FORGOTTEN,
                max_count=self._max_count,
                remedy="raise MemoryNonces.max_count, shorten the ttl, or use SqliteNonces",
            )


# Nonces in one SQLite file, shared by the processes of a machine.

_SCHEMA = """
CREATE TABLE IF NOT EXISTS pump_nonces (
    nonce BLOB PRIMARY KEY,
    holder TEXT NOT NULL,
    is_done INTEGER NOT NULL,
    until_s REAL NOT NULL
) WITHOUT ROWID
"""
_INDEX = "CREATE INDEX IF NOT EXISTS pump_nonces_expiry ON pump_nonces (until_s)"
_CLAIM = """
INSERT INTO pump_nonces (nonce, holder, is_done, until_s) VALUES (?, ?, 0, ?)
ON CONFLICT (nonce) DO UPDATE SET
    holder = excluded.holder, is_done = 0, until_s = excluded.until_s
WHERE pump_nonces.until_s <= ?
    OR (pump_nonces.is_done = 0 AND pump_nonces.holder = excluded.holder)
"""
_COMPLETE = """
INSERT INTO pump_nonces (nonce, holder, is_done, until_s) VALUES (?, ?, 1, ?)
ON CONFLICT (nonce) DO UPDATE SET
    holder = excluded.holder, is_done = 1, until_s = excluded.until_s
"""
_RELEASE = "DELETE FROM pump_nonces WHERE nonce = ? AND holder = ? AND is_done = 0"
_PRUNE = """
DELETE FROM pump_nonces WHERE nonce IN (
    SELECT nonce FROM pump_nonces WHERE until_s <= ? ORDER BY until_s LIMIT ?)
"""


class SqliteNonces:
    """A `NonceStore` in the SQLite file at `path`, opened by the first use.

    The table is `pump_nonces`; the file is put into WAL mode. Nonces whose time is over are
    removed as new ones come. A claim survives the death of its process; after a power failure
    the claims since the last mark may be gone. For one event loop at a time. Survives pickling:
    the copy opens the file for itself.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = path_of_a_file(path, field="SqliteNonces.path", instead="MemoryNonces()")
        self._file = ClaimsFile(self._path, create=_create, prune=_PRUNE)

    def __repr__(self) -> str:
        return f"SqliteNonces({self._path!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(SqliteNonces, self._path), ()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def claim(self, nonce: bytes, *, holder: str, now_s: float, until_s: float) -> bool:
        async with self._file.opened() as files:
            await self._file.prune_now_and_then(files.claims, now_s)
            with translated(self._path):
                # One statement, so of two processes one is given it.
                taken = await files.claims.execute(_CLAIM, (nonce, holder, until_s, now_s))
            return taken.rowcount == 1

    async def mark(self, marks: Sequence[NonceMark]) -> None:
        done = [(each.nonce, each.holder, each.until_s) for each in marks if each.is_done]
        released = [(each.nonce, each.holder) for each in marks if not each.is_done]
        async with self._file.opened() as files, atomic(files.marks, self._path):
            with translated(self._path):
                await files.marks.executemany(_COMPLETE, done)
                await files.marks.executemany(_RELEASE, released)

    async def aclose(self) -> None:
        await self._file.aclose()


async def _create(connection: aiosqlite.Connection) -> None:
    await connection.execute(_SCHEMA)
    await connection.execute(_INDEX)
