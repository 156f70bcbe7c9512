"""The journal on disk: what an engine must not forget, written by groups; and what fits yet."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from pump import headers
from pump.clock import Clock
from pump.errors import StorageFull
from pump.message import Message

from .._engine.journal import Done, Entry
from .._sqlite.database import Database, Space
from .._sqlite.group_commit import GroupCommit
from .scribe import Scribe

# What receiving and acking everything takes: SQLite's log, which starts anew at 4 MB, and leases.
_MOST_RESERVED = 2**24
_LEAST_RESERVED = 2**16
# Of a row beside its body, and its share of a page.
_ROW_BYTES = 512


class SqliteJournal(GroupCommit):
    """Group commit of an engine's entries. The last of the disk is for receives and acks."""

    def __init__(
        self, database: Database, clock: Clock, *, reserve_bytes: int | None = None
    ) -> None:
        super().__init__(database)
        self._database = database
        self._scribe = Scribe(clock)
        self._reserve_bytes = reserve_bytes
        self.measures = reserve_bytes != 0
        self._space = database.space
        self._admitted_bytes = 0

    def write(self, entry: Entry, done: Done) -> asyncio.Future[None]:
        return self.append(self._scribe.take_down(entry), done)

    async def keep_time(self, boot_id: str, offset_s: float) -> None:
        """Go on with the offset between Unix and monotonic times that the file has; before
        `start`.
        """
        await self._database.commit(self._scribe.keep_time(boot_id, offset_s))

    def has_room(self, messages: Sequence[Message]) -> bool:
        """Whether they fit, as far as is known, without what is kept for receives and acks."""
        space = self._database.space
        if space is not self._space:
            self._space, self._admitted_bytes = space, 0
        # Once in the log, once in the file.
        self._admitted_bytes += 2 * sum(len(each.body) + _ROW_BYTES for each in messages)
        left_bytes, reserved = space.left_bytes - self._admitted_bytes, self._reserved(space)
        # A dead letter is sent to have its original acked: some of the reserve is for those.
        return left_bytes >= reserved or (left_bytes >= reserved // 2 and _are_routed(messages))

    async def require_room(self, messages: Sequence[Message]) -> None:
        """Measure anew, and raise `StorageFull` unless they fit."""
        await self.flush()
        if not self.has_room(messages):
            self._admitted_bytes = 0
            raise StorageFull(str(self.path), _refusal(self._space))

    def _reserved(self, space: Space) -> int:
        if self._reserve_bytes is not None:
            return self._reserve_bytes
        wanted = min(_MOST_RESERVED, max(_LEAST_RESERVED, space.total_bytes // 8))
        return min(wanted, space.total_bytes // 2)


def _are_routed(messages: Sequence[Message]) -> bool:
    return all(headers.REJECTION_REASON in each.headers for each in messages)


def _refusal(space: Space) -> str:
    return (
        f"{max(0, space.left_bytes)} bytes are left, and kept for receives and acks; free some "
        f"disk space, raise max_bytes, or let consumers catch up: sends go on by themselves"
    )
