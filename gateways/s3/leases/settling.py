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

from ..._kit.queues import dead_letter
from ..store.objects import FoundObject, WrittenObject
from .codec import MessageId
from .context import HeldLease, LeaseQueueContext
from .protocol import Lost, Undecided, ack, hand_back, lease_in, renew

_Answer = GatewayError | None
"""Why it was refused; None when it was not."""


class LeaseSettling:
    """Settles and extends what one process holds of one queue."""

    def __init__(
        self, context: LeaseQueueContext, mover: LeaseDeadLetterMover, on_change: Callable[[], None]
    ) -> None:
        self._context = context
        self._mover = mover
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

    async def give_back(self, held_leases: Sequence[HeldLease]) -> None:
        """Make available what was claimed and is not delivered: not counted. What cannot be given
        back runs out.
        """
        work = [self._write(held, Abandon()) for held in held_leases if not held.is_over]
        await asyncio.gather(*work, return_exceptions=True)
        self._on_change()

    async def _settle(self, delivery: Delivery, action: Action) -> _Answer:
        held = self._find(delivery)
        if held is None:
            return self._invalid(delivery)
        # From here on a second settlement is refused, and an extension that comes later.
        held.is_over = True
        return await self._write(held, action)

    async def _write(self, held: HeldLease, action: Action) -> _Answer:
        try:
            async with held.lock:
                answer = await self._perform(held, action)
        except BaseException:
            # Unknown whether it was applied: it may be asked for again.
            held.is_over, held.is_doubtful = False, True
            raise
        if isinstance(answer, Undecided):
            held.is_over, held.is_doubtful = False, True
            return answer.error
        return answer

    async def _perform(self, held: HeldLease, action: Action) -> _Answer | Undecided:
        match action:
            case Ack():
                return await self._ack(held)
            case Defer() if self._context.is_last(held.lease.attempt):
                await self._mover.dead_letter(held)
                return None
            case Defer(delay_s=delay_s):
                return await self._hand_back(held, delay_s, is_counted=True)
            case Abandon():
                return await self._hand_back(held, 0.0, is_counted=False)
            case _:
                assert_never(action)

    async def _ack(self, held: HeldLease) -> _Answer | Undecided:
        result = await self._context.driver.run(ack(held.handle))
        match result:
            case WrittenObject():
                self._context.held_leases.forget(held)
                self._context.catalogue.note_done(held.slot)
                return None
            case Undecided():
                return result
            case Lost(found=found) if found is None or _is_successor(found, held):
                # No claim replaces an end, so none of ours was written, whatever our clock says:
                # it stands still while the machine sleeps.
                return self._lose(held)
            case _ if self._context.now_s >= held.deadline_s:
                return self._lose(held)
            case _:
                # In doubt, and no other may have written: it was us.
                self._context.note_loss(held)
                return None

    async def _hand_back(
        self, held: HeldLease, delay_s: float, *, is_counted: bool
    ) -> _Answer | Undecided:
        lease = self._context.release(held.lease, delay_s, is_counted=is_counted)
        result = await self._context.driver.run(hand_back(held.handle, lease))
        match result:
            case WrittenObject(etag=etag):
                self._context.note_release(held, etag, lease)
                return None
            case Undecided():
                return result
            case Lost(found=None):
                return self._lose(held)
            case _:
                # Not ours any more is what was asked for: an earlier answer was lost.
                self._context.note_loss(held)
                return None

    async def _extend(self, delivery: Delivery, lease_s: float) -> _Answer:
        held = self._find(delivery)
        if held is None:
            return self._invalid(delivery)
        async with held.lock:
            if not held.is_valid(self._context.now_s):
                return self._invalid(delivery)
            answer = await self._renew(held, lease_s)
            if answer is None and not held.is_valid(self._context.now_s):
                # Written by a clock that stood still, and over already; its reply told the time.
                answer = await self._renew(held, lease_s)
            return answer

    async def _renew(self, held: HeldLease, lease_s: float) -> _Answer:
        asked_at_s = self._context.now_s
        ends_at_s = asked_at_s + lease_s
        lease = self._context.renewal(held.lease, lease_s)
        handle = held.handle
        # Until there is an answer the shorter of the two leases counts.
        held.deadline_s, held.is_doubtful = min(held.deadline_s, ends_at_s), True
        result = await self._context.driver.run(renew(handle, lease))
        match result:
            case WrittenObject(etag=etag):
                held.etag, held.lease, held.is_doubtful = etag, lease, False
                held.deadline_s = self._context.deadline_s(
                    lease, asked_at_s=asked_at_s, lease_s=lease_s
                )
                self._context.catalogue.note_lease(held.slot, etag, lease, is_own=True)
                return None
            case Undecided(error=error):
                return error
            case _:
                return self._lose(held)

    def _find(self, delivery: Delivery) -> HeldLease | None:
        held = self._context.held_leases.find(delivery.receipt, self._context.now_s)
        is_ours = delivery.queue == self._context.facts.name
        return held if is_ours else None

    def _lose(self, held: HeldLease) -> GatewayError:
        self._context.note_loss(held)
        return InvalidReceipt(self._context.facts.name, held.receipt)

    def _invalid(self, delivery: Delivery) -> GatewayError:
        return InvalidReceipt(self._context.facts.name, delivery.receipt)


def _is_successor(found: FoundObject, held: HeldLease) -> bool:
    """Whether a lease was claimed over ours. One without a higher number is of a message that
    was done and cleared away, and will not be confirmed.
    """
    lease = lease_in(found)
    return lease is not None and lease.fence > held.lease.fence


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


# Dead letters: a message that had its last delivery goes to the dead-letter queue, then is done
# here.
#
# The copy is sent before the original is done: after a crash in between the next process sends it
# again, with the same de-duplication id, for a queue that knows what that is.

_RETRY_S = 1.0
_log = get_logger("gateways.s3")


class LeaseDeadLetterMover:
    """Moves dead messages of one queue."""

    def __init__(self, context: LeaseQueueContext) -> None:
        self._context = context

    async def dead_letter(self, held: HeldLease) -> None:
        """Move a message whose lease is held. When that fails it is tried again a little later,
        here or by another process.
        """
        try:
            await self._context.around.send_to(self._target, self._copy(held))
        except Exception as error:  # broad: whatever the other queue says, nothing is lost
            _log.warning(vocabulary.ROUTING_FAILED, queue=self._target, error=repr(error))
            await self._postpone(held)
            return
        result = await self._context.driver.run(ack(held.handle))
        if isinstance(result, WrittenObject):
            self._context.held_leases.forget(held)
            self._context.catalogue.note_done(held.slot)
        else:
            self._context.note_loss(held)

    async def _postpone(self, held: HeldLease) -> None:
        lease = self._context.release(held.lease, _RETRY_S, is_counted=True)
        result = await self._context.driver.run(hand_back(held.handle, lease))
        if isinstance(result, WrittenObject):
            self._context.note_release(held, result.etag, lease)
        else:
            self._context.note_loss(held)

    @property
    def _target(self) -> str:
        return self._context.facts.dead_letter_queue or ""

    def _copy(self, held: HeldLease) -> Message:
        facts, clock = self._context.facts, self._context.around.clock
        return dead_copy(
            held.message,
            held.slot.id,
            queue=facts.name,
            attempt=held.lease.attempt,
            wall_s=clock.time_s(),
        )


def dead_copy(
    message: Message, place: MessageId, *, queue: str, attempt: int, wall_s: float
) -> Message:
    """What goes to the dead-letter queue: the same from every process that sends it."""
    copy = dead_letter(message, queue=queue, attempt=attempt, wall_s=wall_s)
    return replace(copy, deduplication_id=f"{queue}/{place}")
