"""Claiming: leases for the messages that were picked, confirmed before they are delivered.

Whatever was claimed and is not delivered, because it could not be confirmed or because another
claim failed, is handed back and does not count.

Every claim is confirmed, one over an older lease too: that lease may be a claim of a message which
was done and cleared away, left by a process that died before it could confirm it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from pump.errors import MappingError
from pump.message import Message

from ..store.objects import WrittenObject
from .catalogue import known_leases
from .codec import BatchedMessage, BatchId, batch_key, lease_key
from .context import HeldLease, LeaseQueueContext
from .protocol import (
    Gone,
    Lost,
    Undecided,
    claim_fresh,
    confirm,
    confirm_head,
    lease_in,
    reclaim,
    remove_all,
)
from .settling import LeaseDeadLetterMover, LeaseSettling
from .slots import Slot

_MOVE_LEASE_S = 30.0


class Claiming:
    """Claims for one process, from one queue."""

    def __init__(
        self, context: LeaseQueueContext, settling: LeaseSettling, mover: LeaseDeadLetterMover
    ) -> None:
        self._context = context
        self._settling = settling
        self._mover = mover

    async def claim(self, slots: Sequence[Slot], lease_s: float) -> list[HeldLease]:
        """Claim what was picked and return what may be delivered, in the order of the picks.

        Raises what the store raised, or did not answer, when nothing may be.
        """
        tries = await asyncio.gather(
            *(self._claim(slot, lease_s) for slot in slots), return_exceptions=True
        )
        claimed = [each for each in tries if isinstance(each, HeldLease)]
        errors = [each for each in tries if isinstance(each, BaseException)]
        confirmed, doubts = await self._confirm_all(claimed)
        dead = [each for each in confirmed if each.is_dead]
        moves = (self._mover.dead_letter(each) for each in dead)
        moved = await asyncio.gather(*moves, return_exceptions=True)
        errors += [*doubts, *(each for each in moved if isinstance(each, BaseException))]
        now_s = self._context.now_s
        ready = [each for each in confirmed if not each.is_dead and each.is_valid(now_s)]
        alive = [each for each in claimed if not each.is_dead]
        await self._settling.give_back([each for each in alive if each not in ready])
        if errors and not ready:
            raise errors[0]
        for held in ready:
            self._context.held_leases.add(held, now_s)
        return ready

    async def dead_letter(self, slots: Sequence[Slot]) -> None:
        """Claim and move messages that had their last delivery."""
        await self.claim(slots, _MOVE_LEASE_S)

    async def _claim(self, slot: Slot, lease_s: float) -> HeldLease | None:
        context = self._context
        opened = context.catalogue.opened.get(slot.id.number)
        if opened is None or opened.content is None:
            # The queue was purged, or the batch has gone, since it was picked.
            return None
        batched = opened.content.messages[slot.id.place]
        key, before, etag = lease_key(context.around.keys, slot.id), slot.lease, slot.etag
        asked_at_s = context.now_s
        lease = context.claim(before, lease_s)
        steps = claim_fresh(key, lease) if etag is None else reclaim(key, etag, lease)
        try:
            result = await context.driver.run(steps)
        except BaseException:
            context.catalogue.note_foreign_lease(slot, context.earliest_s)
            raise
        if not isinstance(result, WrittenObject):
            self._note(slot, result)
            return None
        context.catalogue.note_lease(slot, result.etag, lease, is_own=True)
        return HeldLease(
            slot=slot,
            batch=opened.id,
            message=_message(batched),
            key=key,
            etag=result.etag,
            lease=lease,
            deadline_s=context.deadline_s(lease, asked_at_s=asked_at_s, lease_s=lease_s),
            is_dead=before is not None and context.is_last(before.attempt),
        )

    def _note(self, slot: Slot, result: Lost | Gone | Undecided) -> None:
        context = self._context
        if isinstance(result, Lost):
            context.catalogue.note_rival()
        found = result.found if isinstance(result, Lost) else None
        if found is not None and not found.size:
            context.catalogue.note_done(slot)
        elif found is not None and (lease := lease_in(found)) is not None:
            context.catalogue.note_lease(slot, found.etag, lease, is_own=False)
        else:
            context.catalogue.note_foreign_lease(slot, context.earliest_s)
        if isinstance(result, Undecided):
            raise result.error

    # A claim that was won is not yet a message to deliver.

    async def _confirm_all(
        self, claimed: Sequence[HeldLease]
    ) -> tuple[list[HeldLease], list[BaseException]]:
        is_strict = self._context.facts.is_strict
        groups = [[each] for each in claimed] if is_strict else _by_batch(claimed)
        confirming = (self._confirm(group) for group in groups)
        answers = await asyncio.gather(*confirming, return_exceptions=True)
        errors = [answer for answer in answers if isinstance(answer, BaseException)]
        refused = {
            id(each)
            for group, answer in zip(groups, answers, strict=True)
            for each in group
            if answer is not True
        }
        return [each for each in claimed if id(each) not in refused], errors

    async def _confirm(self, group: Sequence[HeldLease]) -> bool:
        batch, is_delivery = group[0].batch, not group[0].is_dead
        if self._context.facts.is_strict and is_delivery:
            return await self._confirm_head(group[0])
        key = batch_key(self._context.around.keys, batch)
        is_there = await self._context.driver.run(confirm(key))
        if isinstance(is_there, Undecided):
            raise is_there.error
        if not is_there:
            await self._undo(batch, group)
        return is_there

    async def _confirm_head(self, held: HeldLease) -> bool:
        context, batch = self._context, held.batch
        known = known_leases(context.catalogue)
        steps = confirm_head(
            context.around.keys, (batch, held.slot.id), known, context.around.time.earliest_s
        )
        is_head = await context.driver.run(steps)
        match is_head:
            case Undecided(error=error):
                raise error
            case Gone():
                await self._undo(batch, [held])
                return False
            case False:
                await self._step_back(held)
        return is_head is True

    async def _undo(self, batch: BatchId, group: Sequence[HeldLease]) -> None:
        """The batch is done and gone: so must our leases be, which no other process looks for."""
        for held in group:
            held.is_over = True
        self._context.catalogue.drop(batch.number)
        await self._context.driver.run(remove_all([held.key for held in group]))

    async def _step_back(self, held: HeldLease) -> None:
        """Another is in flight, or an earlier message has come: hand it back, and look at the
        whole queue anew after a while.
        """
        await self._settling.give_back([held])
        self._context.catalogue.distrust(held.slot, self._context.earliest_s)


def _by_batch(held_leases: Sequence[HeldLease]) -> list[list[HeldLease]]:
    groups: dict[int, list[HeldLease]] = {}
    for held in held_leases:
        groups.setdefault(held.slot.id.number, []).append(held)
    return list(groups.values())


def _message(batched: BatchedMessage) -> Message:
    """A message that cannot be read is delivered as it is, to be rejected rather than kept."""
    try:
        return batched.open()
    except MappingError:
        return Message(body=batched.packed, content_type="application/octet-stream")
