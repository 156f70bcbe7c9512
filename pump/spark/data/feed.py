"""Feed: the segments a query reads next, filled from the queue when there is none.

An offset names a spool and the last segment that was read. What an offset stands for never
changes: segments are numbered once, and written once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from ...clock import Clock
from ...errors import ConfigurationError
from ...ports import Gateway
from .drain import Drain
from .intake import Intake
from .options import StreamOptions
from .spool import Segment, Spool

Offset = Mapping[str, Any]
_LOOK_S = 1.0
_LOCK_S = 15.0
"""How long the process of a query that was stopped may take to die: a poll may be under way."""
_LOCK_POLL_S = 0.1


class Feed:
    """What the driver's side of a stream does, for one query."""

    def __init__(
        self,
        gateway: Gateway,
        options: StreamOptions,
        *,
        clock: Clock,
        spool: Spool | None = None,
        lock_s: float = _LOCK_S,
    ) -> None:
        self._gateway = gateway
        self._options = options
        self._clock = clock
        self._lock_s = lock_s
        self._spool = Spool(options.spool, options.place.queue) if spool is None else spool
        self._intake: Intake | None = None
        self._drain: Drain | None = None
        self._committed = 0

    async def open(self) -> None:
        """Take the spool; `ConfigurationError` when another query has it. The broker is not asked
        yet.
        """
        await self._take_spool()
        self._intake = Intake(self._gateway, self._options, self._spool, self._clock)
        await self._intake.open()

    async def aclose(self) -> None:
        """Let go of the queue and the spool."""
        if self._intake is not None:
            await self._intake.aclose()
        await self._gateway.aclose()
        self._spool.close()

    def initial(self) -> Offset:
        """Where a query without a checkpoint starts: with the first segment that is still there."""
        segments = self._spool.segments
        return self._offset(segments[0].number - 1 if segments else 0)

    async def prepare_drain(self) -> None:
        """From now on, read what is there now, and no more."""
        intake = self._opened
        self._drain = Drain(await intake.depth(), self._gateway.capabilities.receive_batch)

    async def latest(self, start: Offset, limit: int | None) -> Offset:
        """The end of the next batch: at most `limit` messages, or one segment. None stands for
        all that is there. Equal to `start` when there is nothing.
        """
        at = self._checked(start)
        if limit is None:
            await self._drain_all()
        elif self._spool.last == at:
            await self._fill(limit)
        return self._offset(_end(self._spool, at, limit))

    async def commit(self, end: Offset) -> None:
        """Spark is done with everything up to `end`. The batch before it is removed: this one
        stays, for a query that is started again.
        """
        number = self._checked(end)
        oldest_s = self._clock.time_s() - self._options.retain.total_seconds()
        await asyncio.to_thread(self._spool.remove, self._committed, older_than_s=oldest_s)
        self._committed = number
        if self._intake is not None and self._spool.segments:
            self._intake.forget(self._spool.segments[0].number - 1)

    async def _take_spool(self) -> None:
        ends_at_s = self._clock.now_s() + self._lock_s
        while not await asyncio.to_thread(self._spool.open):
            if self._clock.now_s() >= ends_at_s:
                raise ConfigurationError(
                    "spool",
                    str(self._options.spool),
                    "another query writes to it; stop that one, or name another folder",
                )
            await self._clock.sleep(_LOCK_POLL_S)

    @property
    def _opened(self) -> Intake:
        assert self._intake is not None, "open the feed first"
        return self._intake

    async def _fill(self, limit: int) -> None:
        intake = self._opened
        if self._drain is not None:
            await self._drain_some(intake, self._drain, limit)
            return
        await intake.fill(
            limit,
            wait_s=self._options.wait.total_seconds(),
            linger_s=self._options.linger.total_seconds(),
        )

    async def _drain_all(self) -> None:
        intake = self._opened
        drain = Drain(await intake.depth(), self._gateway.capabilities.receive_batch)
        while not drain.is_done:
            await self._drain_some(intake, drain, 2**31)

    async def _drain_some(self, intake: Intake, drain: Drain, limit: int) -> None:
        """Until there is something to read, or the drain is done."""
        while not drain.is_done:
            if drain.is_round_over:
                drain.next_round(await intake.depth())
                continue
            filled = await intake.fill(drain.most(limit), wait_s=_LOOK_S, linger_s=None)
            drain.looked(filled.row_count, is_empty=filled.is_empty)
            if filled.row_count:
                return

    def _offset(self, number: int) -> Offset:
        return {"spool": self._spool.id, "segment": number}

    def _checked(self, offset: Offset) -> int:
        number = segment_of(offset)
        if offset["spool"] != self._spool.id or number > self._spool.last:
            raise ConfigurationError(
                "spool",
                str(self._options.spool),
                "the checkpoint belongs to another spool; name the folder it was written with, or "
                "a checkpoint of its own for this one",
            )
        return number


def segment_of(offset: Offset) -> int:
    """The number in an offset of ours."""
    return int(offset["segment"])


def _end(spool: Spool, start: int, limit: int | None) -> int:
    """The last segment of a batch: as many whole ones as the limit allows, but at least one."""
    ready: list[Segment] = [each for each in spool.segments if each.number > start]
    if not ready:
        return start
    if limit is None:
        return ready[-1].number
    end, count = ready[0].number, ready[0].row_count
    for segment in ready[1:]:
        count += segment.row_count
        if count > limit:
            break
        end = segment.number
    return end
