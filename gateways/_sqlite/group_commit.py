"""Group commit: one commit at a time, for everything that has gathered."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path

from pump.errors import StorageFailed

from .database import Database, Statement

Done = Callable[[Exception | None], None]
"""Called once on the loop: with None when the runs are durable, else with what prevented it."""


class Ticket(asyncio.Future[None]):
    """Runs to be written together, and the future that ends when they are."""

    __slots__ = ("is_finished", "on_end", "runs")

    def __init__(
        self, runs: list[Statement], on_end: Done, loop: asyncio.AbstractEventLoop
    ) -> None:
        super().__init__(loop=loop)
        self.runs = runs
        self.on_end = on_end
        self.is_finished = False


class GroupCommit:
    """Writes runs in the order given: they gather while the commit before is on its way, and
    until the thread that writes gets its turn.

    When a group fails, all that gathered behind it fail too: they were decided in the belief
    that it would succeed.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._pending: deque[Ticket] = deque()
        """The loop adds, and the thread that writes takes."""
        self._has_work = asyncio.Event()
        self._writer: asyncio.Task[None] | None = None
        self._is_closing = False
        self.measures = False
        """Whether to look after each group how much may still be written."""

    @property
    def path(self) -> Path:
        """The file that is written."""
        return self._database.path

    def start(self) -> None:
        """Start the writer."""
        self._writer = asyncio.create_task(self._write_groups(), name="pumphouse-journal")

    def append(self, runs: list[Statement], done: Done) -> asyncio.Future[None]:
        """Write the runs together; the future ends after `done`, with the same error.

        Cancelling the future stops nothing.
        """
        ticket = Ticket(runs, done, asyncio.get_running_loop())
        if self._is_closing:
            _finish([ticket], StorageFailed(str(self.path), "it is closed"))
        else:
            self._pending.append(ticket)
            self._has_work.set()
        return ticket

    async def flush(self) -> None:
        """Wait until everything given so far is written, or has failed."""
        await asyncio.wait([self.append([], lambda error: None)])

    async def aclose(self) -> None:
        """Write what has gathered, then refuse more."""
        self._is_closing = True
        self._has_work.set()
        if self._writer is not None:
            await self._writer

    async def _write_groups(self) -> None:
        measure = self._database.measure if self.measures else None
        writing = _Writing(self._database, self._pending, self._finish_group, measure)
        try:
            while self._pending or not self._is_closing:
                await self._has_work.wait()
                self._has_work.clear()
                if self._pending:
                    await self._database.in_thread(writing.write_all)
        finally:
            # Cancelled with the loop: no future may stay open for ever.
            self._is_closing = True
            self._finish_group(
                writing.group, StorageFailed(str(self.path), "its writer was stopped")
            )

    def _finish_group(self, group: Sequence[Ticket], error: StorageFailed | None) -> None:
        if error is None:
            _finish(group, None)
            return
        # What gathered meanwhile was decided in the belief that this group succeeds.
        _finish([*group, *_all_of(self._pending)], error)


class _Writing:
    """The thread's side: group after group, for as long as something has gathered.

    A group is made up when the thread gets its turn, not when it is sent for it: the loop may be
    busy for a while in between, and all that it appends until then is in. Nor does the thread
    wait for the loop before the next group; only a failure has to be dealt with first.
    """

    def __init__(
        self,
        database: Database,
        pending: deque[Ticket],
        finish: Callable[[Sequence[Ticket], StorageFailed | None], None],
        measure: Callable[[], None] | None,
    ) -> None:
        self.group: list[Ticket] = []
        self._database = database
        self._pending = pending
        self._loop = asyncio.get_running_loop()
        self._finish = finish
        self._measure = measure

    def write_all(self) -> None:
        pending = self._pending
        while pending:
            self.group = group = _all_of(pending)
            try:
                self._database.write(merge(group))
            except StorageFailed as error:
                if self._measure is not None:
                    self._measure()
                self._loop.call_soon_threadsafe(self._finish, group, error)
                return
            if self._measure is not None:
                self._measure()
            self._loop.call_soon_threadsafe(self._finish, group, None)


def _all_of(pending: deque[Ticket]) -> list[Ticket]:
    """Take what is there: nothing is lost, or taken twice, if two threads do."""
    taken: list[Ticket] = []
    try:
        while True:
            taken.append(pending.popleft())
    except IndexError:
        return taken


def merge(group: Sequence[Ticket]) -> list[Statement]:
    """The statements of a group in order, joined into one run where they are equal: neighbours,
    and free ones also across other free ones.
    """
    merged: list[Statement] = []
    for ticket in group:
        for run in ticket.runs:
            same = _to_join(merged, run)
            if same is None:
                merged.append(run)
            else:
                same.rows += run.rows
    return merged


def _to_join(merged: Sequence[Statement], run: Statement) -> Statement | None:
    for other in reversed(merged):
        if other.sql == run.sql:
            return other
        if not (other.is_free and run.is_free):
            return None
    return None


def _finish(group: Sequence[Ticket], error: StorageFailed | None) -> None:
    for ticket in group:
        if ticket.is_finished:
            continue
        ticket.is_finished = True
        ticket.on_end(error)
        if ticket.done():
            continue
        if error is None:
            ticket.set_result(None)
        else:
            ticket.set_exception(error)
            # No caller awaits the write of a lapse: do not log its failure as never retrieved.
            ticket.exception()
