"""Group commit: one writer task, one commit for everything that has gathered."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

import attrs

from pump.errors import StorageFailed

from .database import Database, Run

Done = Callable[[Exception | None], None]
"""Called once on the loop: with None when the runs are durable, else with what prevented it."""


@attrs.define(eq=False)
class _Pending:
    runs: list[Run]
    done: Done
    ticket: asyncio.Future[None]
    is_finished: bool = False


class GroupCommit:
    """Writes runs in the order given: they gather while the commit before is on its way.

    When a group fails, all that gathered behind it fail too: they were decided in the belief
    that it would succeed.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._pending: list[_Pending] = []
        self._has_work = asyncio.Event()
        self._writer: asyncio.Task[None] | None = None
        self._is_closing = False

    @property
    def path(self) -> Path:
        """The file that is written."""
        return self._database.path

    def start(self) -> None:
        """Start the writer."""
        self._writer = asyncio.create_task(self._write_groups(), name="pumphouse-journal")

    def append(self, runs: list[Run], done: Done) -> asyncio.Future[None]:
        """Write the runs together; the future ends after `done`, with the same error.

        Cancelling the future stops nothing.
        """
        ticket: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        pending = _Pending(runs, done, ticket)
        if self._is_closing:
            _finish([pending], StorageFailed(str(self.path), "it is closed"))
        else:
            self._pending.append(pending)
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
        group: Sequence[_Pending] = ()
        try:
            while self._pending or not self._is_closing:
                await self._has_work.wait()
                self._has_work.clear()
                group, self._pending = self._pending, []
                if group:
                    await self._write_group(group)
                    group = ()
        finally:
            # Cancelled with the loop: nobody may wait for ever.
            self._is_closing = True
            self._fail(group, StorageFailed(str(self.path), "its writer was stopped"))

    async def _write_group(self, group: Sequence[_Pending]) -> None:
        try:
            await self._database.commit(merge(group))
        except StorageFailed as error:
            self._fail(group, error)
        else:
            _finish(group, None)

    def _fail(self, group: Sequence[_Pending], error: StorageFailed) -> None:
        # What gathered meanwhile was decided in the belief that this group succeeds.
        behind, self._pending = self._pending, []
        _finish([*group, *behind], error)


def merge(group: Sequence[_Pending]) -> list[Run]:
    """The statements of a group in order, equal neighbours joined into one run."""
    merged: list[Run] = []
    for pending in group:
        for run in pending.runs:
            if merged and merged[-1].sql == run.sql:
                merged[-1].rows += run.rows
            else:
                merged.append(run)
    return merged


def _finish(group: Sequence[_Pending], error: StorageFailed | None) -> None:
    for pending in group:
        if not pending.is_finished:
            _finish_one(pending, error)


def _finish_one(pending: _Pending, error: StorageFailed | None) -> None:
    pending.is_finished = True
    pending.done(error)
    if pending.ticket.done():
        return
    if error is None:
        pending.ticket.set_result(None)
    else:
        pending.ticket.set_exception(error)
        # Nobody waits for a lapse to be written; its failure is not a forgotten one.
        pending.ticket.exception()
