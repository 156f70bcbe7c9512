"""Sweeper: sends what was spilled, once its queue can be reached again."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from datetime import timedelta

import attrs

from .backoff import Backoff
from .clock import Clock
from .errors import PumpError, SendFailed, StorageFailed
from .observability import vocabulary
from .observability.log import get_logger
from .observability.telemetry import Telemetry
from .ports import Gateway
from .stores.spill import SpilledMessage, SpillStore

_log = get_logger("pump.spill")
_CLAIM_S = 30.0
_BATCH = 100
_IDLE_S = 15.0
_PACE = Backoff(initial=timedelta(seconds=1), maximum=timedelta(minutes=1))


@attrs.frozen
class Swept:
    """What one sweep did."""

    sent: int = 0
    failed: int = 0


class Sweeper:
    """Re-sends spilled messages; each is removed only after its queue has accepted it.

    Dying between the two sends a message twice; the copy's de-duplication id makes that one
    where the provider de-duplicates.
    """

    def __init__(
        self,
        spill: SpillStore,
        gateway: Gateway,
        clock: Clock,
        telemetry: Telemetry | None = None,
    ) -> None:
        self._spill = spill
        self._gateway = gateway
        self._clock = clock
        self._telemetry = telemetry

    async def run(self) -> None:
        """Sweep until cancelled, with patience while a queue cannot be reached."""
        failure_count = 0
        while True:
            try:
                swept = await self.sweep()
            except StorageFailed as error:
                _log.error(vocabulary.SPILL_FAILED, error=str(error))
                swept = Swept(failed=1)
            failure_count = failure_count + 1 if swept.failed else 0
            pause_s = _IDLE_S
            if failure_count:
                # What failed stays claimed for that long; asking earlier would find nothing.
                pause_s = _CLAIM_S + _PACE.delay_s(failure_count, self._clock.chance())
            elif swept.sent:
                pause_s = 0.0
            await self._clock.sleep(pause_s)

    async def sweep(self) -> Swept:
        """Send what waits and nobody else is sending; report how that went."""
        spilled = await self._spill.claim(now_s=self._clock.time_s(), lease_s=_CLAIM_S, most=_BATCH)
        by_queue: dict[str, list[SpilledMessage]] = defaultdict(list)
        for each in spilled:
            by_queue[each.destination].append(each)
        sent = 0
        for queue, batch in by_queue.items():
            accepted = await self._send(queue, batch)
            await self._spill.remove([each.id for each in accepted])
            sent += len(accepted)
        if sent:
            _log.info(vocabulary.SPILL_FLUSHED, sent=sent, failed=len(spilled) - sent)
        if self._telemetry is not None:
            self._telemetry.spilled(await self._spill.count())
        return Swept(sent, len(spilled) - sent)

    async def _send(self, queue: str, batch: Sequence[SpilledMessage]) -> Sequence[SpilledMessage]:
        try:
            await self._send_all(queue, batch)
        except SendFailed as error:
            self._note_failed(queue, error)
            failed_ids = {id_ for id_, _ in error.failures}
            return [each for each in batch if each.message.id not in failed_ids]
        except (PumpError, TimeoutError, OSError) as error:
            # One queue that cannot be reached, or not even be named here, is not all of them.
            _log.warning(vocabulary.ROUTING_FAILED, destination=queue, error=str(error))
            self._note_failed(queue, error)
            return ()
        return batch

    def _note_failed(self, queue: str, error: Exception) -> None:
        if self._telemetry is not None:
            self._telemetry.failed("route", queue, error)

    async def _send_all(self, queue: str, batch: Sequence[SpilledMessage]) -> None:
        producer = self._gateway.producer(queue)
        messages = [each.message for each in batch]
        try:
            async with self._clock.timeout(_CLAIM_S / 2):
                if self._telemetry is None:
                    await producer.send(messages)
                    return
                with self._telemetry.sending(queue, messages, is_copy=True) as traced:
                    await producer.send(traced)
        finally:
            await producer.aclose()
