"""Settling: deletes and visibility changes in batches, with the fate of every entry."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import assert_never

import attrs

from pump.clock import Clock
from pump.errors import GatewayError, InvalidReceipt
from pump.message import Delivery
from pump.outcome import Abandon, Ack, Action, Defer, Refusal, Settlement

from .._aws.errors import entry_fault
from .calls import (
    MAX_BATCH,
    MAX_VISIBILITY_S,
    QueueCalls,
    delete_entries,
    hide_entries,
    whole_seconds,
)
from .inbound import Receipts

_DELETE = "delete_message_batch"
_HIDE = "change_message_visibility_batch"


@attrs.frozen(eq=False)
class _Batch:
    """Up to ten entries of one request, and when each is to be seen again (deletes: never)."""

    operation: str
    deliveries: Sequence[Delivery]
    seconds: Sequence[int] = ()

    @property
    def entries(self) -> list[dict[str, object]]:
        if self.operation == _DELETE:
            return delete_entries(self.deliveries)
        return hide_entries(self.deliveries, self.seconds)


class Settling:
    """Settles and extends what one consumer received.

    A settlement or extension after the lease's end, or a second settlement, is refused here
    without asking SQS, which would allow it.
    """

    def __init__(
        self,
        calls: QueueCalls,
        receipts: Receipts,
        *,
        clock: Clock,
        lease_s: int,
        doubt_s: float = 0.0,
        on_deleted: Callable[[Sequence[Delivery]], None] | None = None,
    ) -> None:
        """`doubt_s` before a lease's end an extension proves nothing any more: it may be granted to
        a receipt whose lease is over, too, and the lease began before we knew of it.
        """
        self._calls = calls
        self._receipts = receipts
        self._clock = clock
        self._lease_s = lease_s
        self._doubt_s = doubt_s
        self._on_deleted = on_deleted

    async def settle(self, settlements: Sequence[Settlement]) -> Sequence[Refusal]:
        """Apply each once; see `ConsumerPort.settle`."""
        now_s = self._clock.now_s()
        deleted: list[Delivery] = []
        hidden: list[Delivery] = []
        seconds: list[int] = []
        refusals: list[Refusal] = []
        for settlement in settlements:
            delivery = settlement.delivery
            if not self._receipts.take(delivery.receipt, now_s):
                refusals.append(self._refusal(delivery))
                continue
            hide_s = self._hide_s(settlement.action, delivery, now_s)
            if hide_s is None:
                deleted.append(delivery)
            else:
                hidden.append(delivery)
                seconds.append(hide_s)
        batches = [*_batches(_DELETE, deleted), *_batches(_HIDE, hidden, seconds)]
        return [*refusals, *await _all(self._settle_batch, batches)]

    async def extend(self, deliveries: Sequence[Delivery], lease_s: float) -> Sequence[Refusal]:
        """Hide each for `lease_s` from now; see `ConsumerPort.extend`."""
        now_s = self._clock.now_s()
        extended: list[Delivery] = []
        seconds: list[int] = []
        refusals: list[Refusal] = []
        for delivery in deliveries:
            hide_s = self._within_ceiling_s(lease_s, delivery, now_s)
            if hide_s > 0 and self._receipts.is_held(delivery.receipt, now_s + self._doubt_s):
                extended.append(delivery)
                seconds.append(hide_s)
            else:
                refusals.append(self._refusal(delivery))
        batches = list(_batches(_HIDE, extended, seconds))
        return [*refusals, *await _all(self._extend_batch, batches)]

    async def _settle_batch(self, batch: _Batch) -> Sequence[Refusal]:
        try:
            refusals = await self._perform(batch)
        except BaseException:
            # Nobody knows whether it was applied; both requests may be repeated.
            for delivery in batch.deliveries:
                self._receipts.give_back(delivery.receipt)
            raise
        if batch.operation == _HIDE:
            # Not in flight any more is what was asked for: an earlier answer was lost.
            refusals = [refusal for refusal in refusals if not refusal.is_final]
        kept = {refusal.delivery for refusal in refusals if not refusal.is_final}
        for delivery in batch.deliveries:
            if delivery in kept:
                self._receipts.give_back(delivery.receipt)
            else:
                self._receipts.spend(delivery.receipt)
        if self._on_deleted is not None and batch.operation == _DELETE:
            refused = {refusal.delivery for refusal in refusals}
            self._on_deleted([each for each in batch.deliveries if each not in refused])
        return refusals

    async def _extend_batch(self, batch: _Batch) -> Sequence[Refusal]:
        asked_at_s = self._clock.now_s()
        refusals = await self._perform(batch)
        refused = {refusal.delivery: refusal for refusal in refusals}
        late: list[Refusal] = []
        for delivery, hide_s in zip(batch.deliveries, batch.seconds, strict=True):
            if delivery in refused:
                if refused[delivery].is_final:
                    self._receipts.spend(delivery.receipt)
            elif self._is_too_late(delivery.receipt):
                self._receipts.spend(delivery.receipt)
                late.append(self._refusal(delivery))
            else:
                self._receipts.extend(delivery.receipt, asked_at_s + hide_s)
        return [*refusals, *late]

    def _is_too_late(self, receipt: str) -> bool:
        """Whether the lease may have been over when SQS granted another end."""
        if not self._doubt_s or receipt not in self._receipts:
            return False
        return not self._receipts.is_held(receipt, self._clock.now_s() + self._doubt_s)

    async def _perform(self, batch: _Batch) -> Sequence[Refusal]:
        reply = await self._calls.call(batch.operation, {"Entries": batch.entries})
        failed = reply.get("Failed")
        if not failed:
            return ()
        return [self._fault(batch, entry) for entry in failed]

    def _fault(self, batch: _Batch, entry: dict[str, object]) -> Refusal:
        delivery = batch.deliveries[int(str(entry["Id"]))]
        error = entry_fault(entry, operation=batch.operation, target=self._calls.queue)
        if isinstance(error, InvalidReceipt):
            return self._refusal(delivery)
        return Refusal(delivery, error)

    def _refusal(self, delivery: Delivery) -> Refusal:
        return Refusal(delivery, InvalidReceipt(self._calls.queue, delivery.receipt))

    def _hide_s(self, action: Action, delivery: Delivery, now_s: float) -> int | None:
        match action:
            case Ack():
                return None
            case Defer(delay_s=delay_s):
                return self._within_ceiling_s(delay_s, delivery, now_s)
            case Abandon():
                return 0
            case _:
                assert_never(action)

    def _within_ceiling_s(self, seconds: float, delivery: Delivery, now_s: float) -> int:
        received_at_s = delivery.lease_expires_at_s - self._lease_s
        left_s = int(received_at_s + MAX_VISIBILITY_S - now_s)
        return whole_seconds(seconds, most=max(0, left_s))


def _batches(
    operation: str, deliveries: Sequence[Delivery], seconds: Sequence[int] = ()
) -> Iterator[_Batch]:
    for start in range(0, len(deliveries), MAX_BATCH):
        end = start + MAX_BATCH
        yield _Batch(operation, deliveries[start:end], seconds[start:end])


async def _all(
    perform: Callable[[_Batch], Awaitable[Sequence[Refusal]]], batches: Sequence[_Batch]
) -> Sequence[Refusal]:
    """Perform the batches side by side. One that fails is refused as a whole, unless all do."""
    if not batches:
        return ()
    if len(batches) == 1:
        return await perform(batches[0])
    results = await asyncio.gather(*(_attempt(perform, batch) for batch in batches))
    errors = [result for result in results if isinstance(result, GatewayError)]
    if len(errors) == len(results):
        raise errors[0]
    refusals: list[Refusal] = []
    for batch, result in zip(batches, results, strict=True):
        if isinstance(result, GatewayError):
            refusals += [Refusal(delivery, result) for delivery in batch.deliveries]
        else:
            refusals += result
    return refusals


async def _attempt(
    perform: Callable[[_Batch], Awaitable[Sequence[Refusal]]], batch: _Batch
) -> Sequence[Refusal] | GatewayError:
    try:
        return await perform(batch)
    except GatewayError as error:
        return error
