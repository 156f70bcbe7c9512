"""The reserve: the last of the disk is for receives and acks, so that consumers can make room."""

from __future__ import annotations

from pump.errors import StorageFull

from .database import Database, Space
from .group_commit import GroupCommit

# What receiving and acking everything takes: SQLite's log, which starts anew at 4 MB, and leases.
_MOST_RESERVED = 2**24
_LEAST_RESERVED = 2**16
# Room is measured exactly from so many times the reserve on.
_TIGHT = 4
# Of a row beside its body, and its share of a page.
_ROW_BYTES = 512


class DiskReserve:
    """Says whether messages may be sent: by what the last write has found, and what came since.

    `reserve_bytes` is None for a suitable amount, 0 for nothing.
    """

    def __init__(
        self, database: Database, journal: GroupCommit, reserve_bytes: int | None = None
    ) -> None:
        self._database = database
        self._journal = journal
        self._reserve_bytes = reserve_bytes
        self._space = database.space
        self._admitted_bytes = 0
        journal.measures = reserve_bytes != 0
        database.is_tight_below = _TIGHT * (reserve_bytes or _MOST_RESERVED)

    def has_room(self, count: int, body_bytes: int, *, is_routed: bool) -> bool:
        """Whether they fit, as far as is known, without what is kept for receives and acks."""
        if not self._journal.measures:
            return True
        space = self._database.space
        if space is not self._space:
            self._space, self._admitted_bytes = space, 0
        # Once in the log, once in the file.
        self._admitted_bytes += 2 * (body_bytes + count * _ROW_BYTES)
        left_bytes, reserved = space.left_bytes - self._admitted_bytes, self._reserved(space)
        # A dead letter is sent to have its original acked: some of the reserve is for those.
        return left_bytes >= reserved or (is_routed and left_bytes >= reserved // 2)

    async def require_room(self, count: int, body_bytes: int, *, is_routed: bool) -> None:
        """Measure anew, and raise `StorageFull` unless they fit."""
        await self._journal.flush()
        if not self.has_room(count, body_bytes, is_routed=is_routed):
            self._admitted_bytes = 0
            raise StorageFull(str(self._database.path), self._refusal())

    def _reserved(self, space: Space) -> int:
        if self._reserve_bytes is not None:
            return self._reserve_bytes
        wanted = min(_MOST_RESERVED, max(_LEAST_RESERVED, space.total_bytes // 8))
        return min(wanted, space.total_bytes // 2)

    def _refusal(self) -> str:
        limit = ", raise max_bytes" if self._database.is_limited else ""
        return (
            f"{max(0, self._space.left_bytes)} bytes are left, and kept for receives and acks; "
            f"free some disk space{limit}, or let consumers catch up: sends go on by themselves"
        )
