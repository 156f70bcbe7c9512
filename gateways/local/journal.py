"""The journal on disk: what an engine must not forget, written by groups."""

from __future__ import annotations

import asyncio

from pump.clock import Clock

from .._engine.journal import Done, Entry
from .._sqlite.database import Database
from .._sqlite.group_commit import GroupCommit
from .scribe import Scribe


class SqliteJournal(GroupCommit):
    """Group commit of an engine's entries."""

    def __init__(self, database: Database, clock: Clock) -> None:
        super().__init__(database)
        self._scribe = Scribe(clock)

    def write(self, entry: Entry, done: Done) -> asyncio.Future[None]:
        return self.append(self._scribe.take_down(entry), done)
