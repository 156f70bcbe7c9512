"""Settling: acks, returns and extensions of what this process holds, each a single write.

A receipt that was used, or whose lease is over by the local clock, is refused without asking the
store; every other one by the store's condition.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, assert_never

from msgspec.structs import replace

from pump.errors import GatewayError, InvalidReceipt
from pump.message import Delivery, Message
from pump.observability import vocabulary
from pump.observability.log import get_logger
from pump.outcome import Abandon, Ack, Action, Defer, Refusal, Settlement

from ..._kit.redrive import dead_letter
from ..store.objects import FoundObject, WrittenObject
from .codec import MessageId
from .context import Holding, LeaseQueueContext
from .protocol import Lost, Undecided, ack, hand_back, lease_in, renew

_Answer = GatewayError | None
"""Why it was refused; None when it was not."""


class LeaseSettling:
    """Settles and extends what one process holds of one queue."""

    def __init__(
        self, desk: LeaseQueueContext, burial: Burial, on_change: Callable[[], None]
    ) -> None:
        self._desk = desk
        self._burial = burial
        self._on_change = on_change

    async def settle(self, settlements: Sequence[Settlement]) -> list[Refusal]:
        """As `ConsumerPort.settle`: side by side, one refused without the others."""
        deliveries = [settlement.delivery for settlement in settlements]
        work = [self._settle(each.delivery, each.action) for each in settlements]
        try:
            return await _refusals(deliveries, work)
        finally:
            self._on_change()

    async def extend(self, deliveries: Sequence[Delivery], lease_s: float) -> list[Refusal]:
        """As `ConsumerPort.extend`."""
        return await _refusals(deliveries, [self._extend(each, lease_s) for each in deliveries])

    async def give_back(self, holdings: Sequence[Holding]) -> None:
        """Make available what was claimed and reaches nobody: not counted. What cannot be given
        back runs out.
        """
        work = [self._write(holding, Abandon()) for holding in holdings if not holding.is_over]
        await asyncio.gather(*work, return_exceptions=True)
        self._on_change()

    async def _settle(self, delivery: Delivery, action: Action) -> _Answer:
        holding = self._find(delivery)
        if holding is None:
            return self._invalid(delivery)
        # From here on a second settlement is refused, and an extension that comes later.
        holding.is_over = True
        return await self._write(holding, action)

    async def _write(self, holding: Holding, action: Action) -> _Answer:
        try:
            async with holding.lock:
                answer = await self._perform(holding, action)
        except BaseException:
            # Nobody knows whether it was applied: it may be asked for again.
            holding.is_over, holding.is_doubtful = False, True
            raise
        if isinstance(answer, Undecided):
            holding.is_over, holding.is_doubtful = False, True
            return answer.error
        return answer

    async def _perform(self, holding: Holding, action: Action) -> _Answer | Undecided:
        match action:
            case Ack():
                return await self._ack(holding)
            case Defer() if self._desk.is_last(holding.lease.attempt):
                await self._burial.bury(holding)
                return None
            case Defer(delay_s=delay_s):
                return await self._hand_back(holding, delay_s, is_counted=True)
            case Abandon():
                return await self._hand_back(holding, 0.0, is_counted=False)
            case _:
                assert_never(action)

    async def _ack(self, holding: Holding) -> _Answer | Undecided:
        verdict = await self._desk.driver.run(ack(holding.tenancy))
        match verdict:
            case WrittenObject():
                self._desk.holdings.forget(holding)
                self._desk.catalogue.note_done(holding.slot)
                return None
            case Undecided():
                return verdict
            case Lost(found=found) if found is None or _is_successor(found, holding):
                # Nobody claims over an end, so none of ours was written, whatever our clock says:
                # it stands still while the machine sleeps.
                return self._lose(holding)
            case _ if self._desk.now_s >= holding.deadline_s:
                return self._lose(holding)
            case _:
                # In doubt, and nobody else may have written: it was us.
                self._desk.note_loss(holding)
                return None

    async def _hand_back(
        self, holding: Holding, delay_s: float, *, is_counted: bool
    ) -> _Answer | Undecided:
        lease = self._desk.release(holding.lease, delay_s, is_counted=is_counted)
        verdict = await self._desk.driver.run(hand_back(holding.tenancy, lease))
        match verdict:
            case WrittenObject(etag=etag):
                self._desk.note_release(holding, etag, lease)
                return None
            case Undecided():
                return verdict
            case Lost(found=None):
                return self._lose(holding)
            case _:
                # Not ours any more is what was asked for: an earlier answer was lost.
                self._desk.note_loss(holding)
                return None

    async def _extend(self, delivery: Delivery, lease_s: float) -> _Answer:
        holding = self._find(delivery)
        if holding is None:
            return self._invalid(delivery)
        async with holding.lock:
            if not holding.is_valid(self._desk.now_s):
                return self._invalid(delivery)
            answer = await self._renew(holding, lease_s)
            if answer is None and not holding.is_valid(self._desk.now_s):
                # Written by a clock that stood still, and over already; its reply told the time.
                answer = await self._renew(holding, lease_s)
            return answer

    async def _renew(self, holding: Holding, lease_s: float) -> _Answer:
        asked_at_s = self._desk.now_s
        ends_at_s = asked_at_s + lease_s
        lease = self._desk.renewal(holding.lease, lease_s)
        tenancy = holding.tenancy
        # Until there is an answer the shorter of the two leases counts.
        holding.deadline_s, holding.is_doubtful = min(holding.deadline_s, ends_at_s), True
        verdict = await self._desk.driver.run(renew(tenancy, lease))
        match verdict:
            case WrittenObject(etag=etag):
                holding.etag, holding.lease, holding.is_doubtful = etag, lease, False
                holding.deadline_s = self._desk.deadline_s(
                    lease, asked_at_s=asked_at_s, lease_s=lease_s
                )
                self._desk.catalogue.note_lease(holding.slot, etag, lease, is_own=True)
                return None
            case Undecided(error=error):
                return error
            case _:
                return self._lose(holding)

    def _find(self, delivery: Delivery) -> Holding | None:
        holding = self._desk.holdings.find(delivery.receipt, self._desk.now_s)
        is_ours = delivery.queue == self._desk.facts.name
        return holding if is_ours else None

    def _lose(self, holding: Holding) -> GatewayError:
        self._desk.note_loss(holding)
        return InvalidReceipt(self._desk.facts.name, holding.receipt)

    def _invalid(self, delivery: Delivery) -> GatewayError:
        return InvalidReceipt(self._desk.facts.name, delivery.receipt)


def _is_successor(found: FoundObject, holding: Holding) -> bool:
    """Whether a lease was claimed over ours. One without a higher number is of a message that
    was done and cleared away, and will not be confirmed.
    """
    lease = lease_in(found)
    return lease is not None and lease.fence > holding.lease.fence


async def _refusals(
    deliveries: Sequence[Delivery], work: Sequence[Coroutine[Any, Any, _Answer]]
) -> list[Refusal]:
    """Do all of it side by side. What the store did not answer is refused, unless that is all
    of it: then it is raised, as nothing is known.
    """
    answers = await asyncio.gather(*work, return_exceptions=True)
    refusals: list[Refusal] = []
    for delivery, answer in zip(deliveries, answers, strict=True):
        if isinstance(answer, GatewayError):
            refusals.append(Refusal(delivery, answer))
        elif isinstance(answer, BaseException):
            raise answer
    open_ones = [refusal for refusal in refusals if not refusal.is_final]
    if deliveries and len(open_ones) == len(deliveries):
        raise open_ones[0].error
    return refusals


# Burial: a message that had its last delivery goes to the dead-letter queue, then is done here.
#
# The copy is sent before the original is done: whoever dies in between has the next one send it
# again, with the same de-duplication id, for a queue that knows what that is.

_RETRY_S = 1.0
_log = get_logger("gateways.s3")


class Burial:
    """Moves dead messages of one queue."""

    def __init__(self, desk: LeaseQueueContext) -> None:
        self._desk = desk

    async def bury(self, holding: Holding) -> None:
        """Move a message in hand. When that fails it is tried again a little later, here or by
        another process.
        """
        try:
            await self._desk.around.send_to(self._target, self._copy(holding))
        except Exception as error:  # broad: whatever the other queue says, nothing is lost
            _log.warning(vocabulary.ROUTING_FAILED, queue=self._target, error=repr(error))
            await self._postpone(holding)
            return
        verdict = await self._desk.driver.run(ack(holding.tenancy))
        if isinstance(verdict, WrittenObject):
            self._desk.holdings.forget(holding)
            self._desk.catalogue.note_done(holding.slot)
        else:
            self._desk.note_loss(holding)

    async def _postpone(self, holding: Holding) -> None:
        lease = self._desk.release(holding.lease, _RETRY_S, is_counted=True)
        verdict = await self._desk.driver.run(hand_back(holding.tenancy, lease))
        if isinstance(verdict, WrittenObject):
            self._desk.note_release(holding, verdict.etag, lease)
        else:
            self._desk.note_loss(holding)

    @property
    def _target(self) -> str:
        return self._desk.facts.dead_letter_queue or ""

    def _copy(self, holding: Holding) -> Message:
        facts, clock = self._desk.facts, self._desk.around.clock
        return dead_copy(
            holding.message,
            holding.slot.id,
            queue=facts.name,
            attempt=holding.lease.attempt,
            wall_s=clock.time_s(),
        )


def dead_copy(
    message: Message, place: MessageId, *, queue: str, attempt: int, wall_s: float
) -> Message:
    """What goes to the dead-letter queue: the same for everyone who sends it."""
    copy = dead_letter(message, queue=queue, attempt=attempt, wall_s=wall_s)
    return replace(copy, deduplication_id=f"{queue}/{place}")
