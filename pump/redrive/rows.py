"""Rows: every message that was redriven is a row of the ledger before it leaves its queue."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from types import TracebackType
from typing import Self

from ..clock import SYSTEM_CLOCK, Clock
from ..errors import StorageFailed
from ..events import RedrivenEvent
from ..headers import ATTEMPTS, REJECTION_DETAIL, REJECTION_REASON
from ..message import Delivery
from ..observability import vocabulary
from ..observability.log import get_logger
from ..stores.ledger.buffered_ledger import BufferedLedger, pump_name
from ..stores.ledger.row_store import RowStore
from ..stores.ledger.rows import RowMaker
from ..stores.ledger.writer_thread import WriterThread
from .columns import whole

_log = get_logger("pump.redrive")


class LedgerRows:
    """`async with LedgerRows(…)`: rows for a ledger that nobody else has open in this process.

    Unlike the ledger itself it forgives no disk: a row is there when `write` returns. Without a
    ledger it writes nothing.
    """

    def __init__(
        self, ledger: BufferedLedger | None, gateway: str, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self._ledger = ledger
        self._gateway = gateway
        self._clock = clock
        self._store: RowStore | None = None

    async def __aenter__(self) -> Self:
        if self._ledger is None:
            return self
        self._maker = RowMaker(
            gateway=self._gateway, pump=pump_name(), has_detail=self._ledger.has_detail
        )
        self._store = self._ledger.new_store()
        self._thread = WriterThread("pump-redrive-rows")
        try:
            await self._thread.do(self._store.open)
        except BaseException:
            self._thread.end()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        store, self._store = self._store, None
        if store is None:
            return
        try:
            await self._thread.do(partial(store.close, self._clock.time_s()))
        except StorageFailed as failure:
            # The rows are durable all the same, and the next writer rolls them.
            _log.warning(vocabulary.LEDGER_UNROLLED, path=failure.path, error=str(failure))
        finally:
            self._thread.end()

    async def write(self, sent: Sequence[tuple[Delivery, float | None]], target: str) -> None:
        """Return when the rows are on the disk; `StorageFailed` when they cannot be.

        After a crash a row may be written a second time. It is the same row, of the moment that
        the record of the run has for it, so that a report can tell.
        """
        if self._store is None:
            return
        now_s = self._clock.time_s()
        rows = self._maker(
            [(event_of(each, target), now_s if at_s is None else at_s) for each, at_s in sent]
        )
        await self._thread.do(partial(self._store.append, rows))


def event_of(delivery: Delivery, target: str) -> RedrivenEvent:
    """What the ledger is told."""
    message = delivery.message
    return RedrivenEvent(
        message_id=message.id,
        queue=delivery.queue,
        destination=target,
        # Not the delivery's own: that is another one when the message comes again to be removed.
        attempt=whole(message.headers.get(ATTEMPTS)) or 1,
        message_type=message.type,
        reason=message.headers.get(REJECTION_REASON),
        detail=message.headers.get(REJECTION_DETAIL, ""),
        created_at_s=message.created_at_s,
    )
