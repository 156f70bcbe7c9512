"""Outcome ledger: rows that are on the disk when it says so, and never dropped.

The ordinary ledger gathers rows and forgives a disk; here the broker is told only after the rows
are durable, so whoever writes waits, and hears when they could not be written. What several write
at once goes to the disk together.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from ...clock import SYSTEM_CLOCK, Clock
from ...errors import StorageFailed
from ...events import Event, LeaseLostEvent, OutcomeEvent
from ...observability import vocabulary
from ...observability.log import get_logger
from ...stores.ledger.buffered_ledger import pump_name
from ...stores.ledger.parquet_ledger import ParquetLedger
from ...stores.ledger.row_store import RowStore
from ...stores.ledger.rows import Noted, RowMaker
from ...stores.ledger.writer_thread import WriterThread

_log = get_logger("pump.ledger")
_LINGER_S = 0.002
"""How long the first rows wait for company: one settle call brings ten at most, and a transaction
is dear. Tasks used a tenth less CPU a message with it, and 5 ms were no better."""
_CLOSE_WITHIN_S = 60.0
"""How long rolling may take at the end; what is not rolled then is in the journal, durably."""


class OutcomeLedger:
    """A ledger for one task, written like `ParquetLedger` into the same folder.

    As an observer it keeps lost leases only: outcomes are given to `write`, before their messages
    are settled.
    """

    def __init__(self, like: ParquetLedger) -> None:
        self._like = like
        self._clock: Clock = SYSTEM_CLOCK
        self._store: RowStore | None = None
        self._lost: list[Noted] = []
        self._waiting: list[Noted] = []
        self._written: asyncio.Future[None] | None = None
        self._asked = asyncio.Event()
        self._is_closing = False

    async def open(self, gateway: str, clock: Clock) -> None:
        self._clock = clock
        self._maker = RowMaker(gateway=gateway, pump=pump_name(), has_detail=self._like.has_detail)
        store = self._like.new_store()
        self._thread = WriterThread("pump-outcomes")
        try:
            await self._thread.do(store.open)
        except BaseException:
            self._thread.end()
            raise
        self._store = store
        self._writer = asyncio.create_task(self._work(store), name="outcome-writer")

    def record(self, event: Event) -> None:
        if isinstance(event, LeaseLostEvent):
            self._lost.append((event, self._clock.time_s()))

    def write(self, events: Sequence[OutcomeEvent]) -> asyncio.Future[None]:
        """Have rows written; the future ends when they are durable, or with `StorageFailed`, and
        then none of them is kept. It may be awaited by many, and must be shielded.
        """
        now_s = self._clock.time_s()
        self._waiting += [(event, now_s) for event in events]
        if self._written is None:
            self._written = asyncio.get_running_loop().create_future()
            # Whoever asked may have been cancelled: an error that nobody hears is not a defect.
            self._written.add_done_callback(_heard)
            self._asked.set()
        return self._written

    async def aclose(self) -> None:
        store, self._store = self._store, None
        if store is None:
            return
        self._is_closing = True
        self._asked.set()
        try:
            async with self._clock.timeout(_CLOSE_WITHIN_S):
                await self._writer
                await self._thread.do(partial(store.close, self._clock.time_s()))
        except (StorageFailed, OSError) as error:
            # The rows stay in the journal, and whoever closes the ledger next rolls them.
            self._say(vocabulary.LEDGER_UNROLLED, error)
        finally:
            self._writer.cancel()
            self._thread.end()

    async def _work(self, store: RowStore) -> None:
        while not self._is_closing or self._waiting or self._lost:
            await self._asked.wait()
            if not self._is_closing:
                self._asked.clear()
                await self._clock.sleep(_LINGER_S)
            await self._write(store)

    async def _write(self, store: RowStore) -> None:
        lost, self._lost = self._lost, []
        noted, self._waiting = [*lost, *self._waiting], []
        written, self._written = self._written, None
        try:
            wants_care = await self._thread.do(partial(_append, store, self._maker, noted))
        except Exception as error:  # broad: what no store can take must not be acked either
            self._say(vocabulary.LEDGER_UNWRITTEN, error)
            if not self._is_closing:
                self._lost = lost + self._lost
            _end(written, _as_ours(error, self._like.folder))
            return
        _end(written, None)
        if wants_care:
            await self._care(store)

    async def _care(self, store: RowStore) -> None:
        try:
            await self._thread.do(partial(store.care, self._clock.time_s()))
        except Exception as error:  # broad: whoever settles waits for the writer, which must live
            self._say(vocabulary.LEDGER_UNROLLED, error)

    def _say(self, event: str, error: Exception) -> None:
        _log.warning(
            event,
            path=str(self._like.folder),
            error=str(error) or type(error).__name__,
            remedy="free or repair the disk below the ledger; no message is removed meanwhile",
        )


def _append(store: RowStore, maker: RowMaker, noted: Sequence[Noted]) -> bool:
    rows = maker(noted)
    return bool(rows) and store.append(rows)


def _as_ours(error: Exception, folder: Path) -> StorageFailed:
    if isinstance(error, StorageFailed):
        return error
    return StorageFailed(str(folder), f"{type(error).__name__}: {error}")


def _end(written: asyncio.Future[None] | None, error: Exception | None) -> None:
    if written is None or written.done():
        return
    if error is None:
        written.set_result(None)
    else:
        written.set_exception(error)


def _heard(written: asyncio.Future[None]) -> None:
    if not written.cancelled():
        written.exception()
