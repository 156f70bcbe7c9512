"""Gathering: one batch for a function, filtered, by size, by time and by weight."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Final

from pump.backoff import Backoff
from pump.clock import Clock
from pump.errors import StorageFailed
from pump.observability import vocabulary
from pump.observability.log import get_logger

from ..config.filters import passes
from ..config.model import MappingConfig
from ..engine import ReceiptProblem
from ..errors import SqsError
from ..model import QueueAddress
from .event import MAX_PAYLOAD_BYTES, Item, make_item
from .ports import QueueEngine

_MAX_RECEIVE: Final = 10
"""SQS's: a larger batch takes several receives."""
_POLL_S: Final = 20.0
"""SQS's longest; a poll ends earlier as soon as there is a message."""
_RETRY: Final = Backoff(
    initial=timedelta(milliseconds=100), maximum=timedelta(seconds=1), jitter=0.5
)
"""For a queue that is gone or a disk that is full: someone at this machine is about to fix it."""
_REFUSALS: Final = (StorageFailed, SqsError)

_log = get_logger("gateways.sqs_server")


class Gatherer:
    """Receives for one mapping. One batch at a time; not to be shared by tasks."""

    def __init__(
        self, engine: QueueEngine, address: QueueAddress, config: MappingConfig, clock: Clock
    ) -> None:
        self._engine = engine
        self._address = address
        self._config = config
        self._clock = clock
        self._failures = 0
        self._is_missing = False
        self.filtered = 0

    async def gather(self) -> list[Item]:
        """The next batch; maybe empty, then ask again.

        Without a window, what one receive gives; with one, until the batch is full, the window
        is over since its first message, or the payload is at its limit. Cancelled, it makes
        visible what it had.
        """
        # By id: what outlives its visibility in a long window is received again, and only its
        # newest receipt is good.
        batch: dict[str, Item] = {}
        try:
            await self._fill(batch)
        except asyncio.CancelledError:
            await self.give_back(list(batch.values()))
            raise
        return list(batch.values())

    async def _fill(self, batch: dict[str, Item]) -> None:
        config, payload = self._config, 0
        closes_at_s: float | None = None
        while len(batch) < config.batch_size and payload < MAX_PAYLOAD_BYTES:
            wait_s = _POLL_S if closes_at_s is None else closes_at_s - self._clock.now_s()
            if wait_s <= 0:
                return
            items = await self._receive(min(_MAX_RECEIVE, config.batch_size - len(batch)), wait_s)
            batch.update({item.id: item for item in items})
            payload += sum(item.size for item in items)
            if not config.batching_window_s or not batch:
                return
            if closes_at_s is None:
                closes_at_s = self._clock.now_s() + config.batching_window_s

    async def _receive(self, max_count: int, wait_s: float) -> list[Item]:
        queue = self._find()
        if queue is None:
            await self._wait_after_failure()
            return []
        ends_at_s = self._clock.now_s() + wait_s
        try:
            messages = await self._engine.receive(
                queue,
                max_count=max_count,
                wait_s=wait_s,
                visibility_s=queue.settings.visibility_timeout_s,
                is_inside=True,
            )
        except _REFUSALS as error:
            if not self._failures:
                _log.warning(vocabulary.RECEIVE_FAILED, queue=self._address.name, error=str(error))
            await self._wait_after_failure()
            return []
        if not messages and self._clock.now_s() < ends_at_s:
            # Sent home early: the queue is being deleted, or the server closes.
            await self._wait_after_failure()
            return []
        self._failures = 0
        has_window = self._config.batching_window_s > 0
        items = [make_item(each, self._address, has_window=has_window) for each in messages]
        return await self._keep_matching(items)

    def _find(self) -> Any:
        queue = self._engine.find(self._address)
        if (queue is None) != self._is_missing:
            self._is_missing = queue is None
            event = vocabulary.QUEUE_MISSING if self._is_missing else vocabulary.QUEUE_FOUND
            _log.warning(event, queue=self._address.name)
        return queue

    async def _wait_after_failure(self) -> None:
        self._failures += 1
        await self._clock.sleep(_RETRY.delay_s(self._failures, self._clock.chance()))

    async def _keep_matching(self, items: list[Item]) -> list[Item]:
        """Delete what no filter matches, as Lambda does: the function will never want it."""
        filters = self._config.filters
        wanted = [item for item in items if passes(filters, item.record)]
        if len(wanted) < len(items):
            kept = set(map(id, wanted))
            self.filtered += len(items) - len(wanted)
            try:
                await self.delete([item for item in items if id(item) not in kept])
            except asyncio.CancelledError:
                await self.give_back(wanted)
                raise
        return wanted

    async def delete(self, items: Sequence[Item]) -> None:
        """Delete them; what the disk refuses to delete comes again after its time."""
        queue = self._engine.find(self._address)
        if queue is None or not items:
            return
        try:
            refused = await self._engine.delete(queue, [item.message.receipt for item in items])
        except _REFUSALS as error:
            _log.warning(
                vocabulary.DELETE_FAILED,
                queue=self._address.name,
                messages=len(items),
                error=str(error),
            )
            return
        # A function may delete its messages by itself; then they are gone.
        count = sum(problem not in (None, ReceiptProblem.GONE) for problem in refused)
        if count:
            # The function took longer than the visibility timeout: they may come again.
            _log.warning(vocabulary.DELETE_REFUSED, queue=self._address.name, messages=count)

    async def give_back(self, items: Sequence[Item]) -> None:
        """Make visible at once what no function has seen."""
        queue = self._engine.find(self._address)
        if queue is None or not items:
            return
        try:
            await self._engine.change_visibility(queue, [(i.message.receipt, 0) for i in items])
        except _REFUSALS as error:
            _log.warning(
                vocabulary.RETURN_FAILED,
                queue=self._address.name,
                messages=len(items),
                error=str(error),
            )
