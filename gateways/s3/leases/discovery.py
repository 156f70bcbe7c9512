"""Discovery: finds out what is there, with as few requests as will do.

New batches are listed behind the last that was seen; the whole queue only at the start and now and
then. A number that is missing among them is a batch on its way: for a while listings begin there.
Leases are listed where others have been seen to claim, and read when they may be over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from math import inf
from typing import TypeVar

from pump.errors import GatewayError, MappingError
from pump.observability import vocabulary
from pump.observability.log import get_logger

from ..store.objects import FoundObject, ListedObject, Missing, Same
from .choosing import Chart, Need, Open, Read
from .codec import (
    BatchId,
    batch_key,
    batch_of,
    before_batch,
    before_leases,
    lease_key,
    lease_keys,
    message_of,
)
from .context import LeaseQueueContext
from .protocol import Undecided, clean_up, lease_in, list_page, read, read_batch, remove_all
from .slots import Sighting, Slot, SlotPhase

_RELIST_S = 60.0
"""How long until the whole queue is listed again."""
_SWEEP_S = 3600.0
"""How long until leases without a batch are looked for again."""
_GAP_S = 10.0
"""How long a missing number is waited for; later, the next whole listing finds it."""
_MAX_GAPS = 1000
_MAX_READS = 32
_FRESH_S = 0.05
"""For how long one listing of leases serves all receives of a process that shares the queue."""
_log = get_logger("gateways.s3")
_T = TypeVar("_T")


class MessageDiscovery:
    """Looks for messages, for all receives of one process at once."""

    def __init__(self, context: LeaseQueueContext) -> None:
        self._context = context
        self._looking = asyncio.Lock()
        self.looks = 0
        """How many looks at the queue have begun."""
        self.forget()

    def forget(self) -> None:
        """Begin anew."""
        self._looked_at_s = -inf
        self._relist_at_s = -inf
        self._sweep_at_s = -inf
        self._charted_at_s = -inf
        self._chart_again_at_s = -inf
        self._listed_upto = 0
        self._highest: int | None = None
        """The highest number there was when the queue was last listed to its end."""
        self._gaps: dict[int, float] = {}

    @property
    def is_stale(self) -> bool:
        """Whether something may have come that is to be had before what is ready: newest first,
        it may always.
        """
        age_s = self._context.now_s - self._looked_at_s
        return self._context.facts.is_lifo and age_s >= self._context.settings.poll_s

    async def find(self, max_count: int, asked: int) -> bool:
        """Make so many messages ready, or some at least, and say whether there are any.

        `asked` is `looks` when the receive began: a look that has begun since then counts for
        it, and if that found nothing there is nothing.
        """
        async with self._looking:
            await self._prepare(max_count)
            is_wanted = self.is_stale or not self._has_any()
            if is_wanted and self.looks == asked:
                await self._look(max_count)
            return self._has_any()

    async def look_around(self) -> None:
        """List the leases around what comes next, for a process that shares the queue: a listing
        costs as much as one claim in vain, and saves several.
        """
        context = self._context
        async with self._looking:
            if context.facts.is_strict or context.now_s < self._charted_at_s + _FRESH_S:
                # A strict claim is followed by a listing, and only one is made at a time.
                return
            number = context.choosing.next_number(context.earliest_s)
            if number is not None:
                await self._chart(context.catalogue.stretch_start(number))

    async def clean_up(self) -> None:
        """Remove what is finished, bodies at once, and leases when they are old enough. Runs in the
        background: what fails is logged, and done another time.
        """
        try:
            await self._remove_leases()
            while await self._remove_finished():
                pass
        except GatewayError as error:
            queue = self._context.facts.name
            _log.warning(vocabulary.DELETE_FAILED, queue=queue, error=str(error))

    async def look_once_more(self) -> None:
        """Before the end: where the last of a batch was left to others, see whether it is done,
        since then the batch is left to this process.
        """
        context = self._context
        try:
            async with self._looking:
                number = context.catalogue.left_to_others()
                if number is not None:
                    await self._chart(number)
        except GatewayError as error:
            _log.warning(vocabulary.DELETE_FAILED, queue=context.facts.name, error=str(error))

    async def _remove_finished(self) -> bool:
        """Remove the batches that were finished since; whether there were any and are none."""
        context = self._context
        finished = context.catalogue.to_remove()
        keys = [batch_key(context.around.keys, batch) for batch in finished]
        if not keys or not await context.driver.run(remove_all(keys)):
            return False
        context.catalogue.note_removed(finished)
        return True

    async def _remove_leases(self) -> None:
        context, keys = self._context, self._context.around.keys
        due = context.catalogue.to_clean_up(context.earliest_s)
        if not due:
            return
        leases = [key for batch in due for key in lease_keys(keys, batch)]
        if await context.driver.run(clean_up([batch_key(keys, batch) for batch in due], leases)):
            for batch in due:
                context.catalogue.drop(batch.number)

    def _has_any(self) -> bool:
        return self._context.choosing.has_next(self._context.earliest_s)

    async def _prepare(self, max_count: int) -> None:
        """Read what stands between the catalogue and so many messages; of leases, a handful at a
        time: most are of messages that others have in flight.
        """
        choosing = self._context.choosing
        while (need := choosing.needs(max_count, self._context.earliest_s)) is not None:
            await self._meet(need)
            if isinstance(need, Read):
                return

    async def _look(self, max_count: int) -> None:
        self.looks += 1
        self._looked_at_s = now_s = self._context.now_s
        if now_s >= self._relist_at_s or self._context.catalogue.is_outdated:
            self._relist_at_s = now_s + _RELIST_S
            self._context.catalogue.is_outdated = False
            self._listed_upto = 0
        self._context.catalogue.note_alone(self._context.earliest_s)
        if now_s >= self._chart_again_at_s:
            self._context.catalogue.doubt_foreign_leases()
        is_lifo, is_last = self._context.facts.is_lifo, False
        after = min([self._listed_upto, *(gap - 1 for gap in self._gaps)])
        while not is_last:
            after, is_last = await self._list_batches(after)
            # Newest first, the first page says nothing; oldest first, it may say enough.
            if is_last or not is_lifo:
                await self._prepare(max_count)
                if self._has_any():
                    return

    # Batches.

    async def _list_batches(self, after: int) -> tuple[int, bool]:
        """List one page behind a number; returns its last number, and whether it was the last."""
        context, keys = self._context, self._context.around.keys
        turn = context.catalogue.turn
        page = _decided(
            await context.driver.run(list_page(keys.messages, before_batch(keys, after + 1)))
        )
        found = [(batch, entry) for entry in page.entries if (batch := batch_of(keys, entry.key))]
        last = max((batch.number for batch, _ in found), default=after)
        is_alone = self._highest is not None and not context.catalogue.is_shared(context.earliest_s)
        for batch, entry in found:
            is_fresh = is_alone and batch.number > (self._highest or 0)
            context.catalogue.close(batch, entry.modified_s, is_charted=is_fresh)
        numbers = {batch.number for batch, _ in found}
        upto = inf if page.is_last else last
        context.catalogue.drop_missing(numbers, after=after, upto=upto, turn=turn)
        self._note_gaps(numbers, last, is_last=page.is_last)
        self._listed_upto = max(last, self._listed_upto)
        if page.is_last:
            self._highest = max(last, self._highest or 0)
        return last, page.is_last

    def _note_gaps(self, numbers: set[int], last: int, *, is_last: bool) -> None:
        """Remember which numbers are missing among new ones: their batches are on their way."""
        now_s = self._context.now_s
        self._gaps = {
            number: noticed_s
            for number, noticed_s in self._gaps.items()
            if number not in numbers and now_s < noticed_s + _GAP_S
        }
        if self._highest is not None and is_last:
            for number in range(max(self._highest + 1, last - _MAX_GAPS), last):
                if number not in numbers and not self._context.catalogue.knows(number):
                    self._gaps.setdefault(number, now_s)

    async def _open(self, batches: Sequence[BatchId]) -> None:
        await asyncio.gather(*(self._open_one(batch) for batch in batches))

    async def _open_one(self, batch: BatchId) -> None:
        context = self._context
        try:
            steps = read_batch(batch_key(context.around.keys, batch))
            content = await context.driver.run(steps)
        except MappingError as error:
            # It cannot be delivered; it stays where it is, for an operator to look at.
            _log.error(vocabulary.RECEIVE_FAILED, queue=context.facts.name, error=str(error))
            context.catalogue.drop(batch.number)
            return
        if isinstance(content, Undecided):
            raise content.error
        if isinstance(content, Missing):
            context.catalogue.drop(batch.number)
        else:
            context.catalogue.open(batch, content, earliest_s=context.earliest_s)

    # Leases.

    async def _meet(self, need: Need) -> None:
        match need:
            case Chart(number=number):
                await self._chart(number)
            case Open(batches=batches):
                await self._open(batches)
            case Read(slots=slots):
                first = sorted(slots, key=lambda slot: slot.rank)[:_MAX_READS]
                await asyncio.gather(*(self._read(slot) for slot in first))

    async def _chart(self, number: int) -> None:
        context, keys = self._context, self._context.around.keys
        is_sweep = context.now_s >= self._sweep_at_s
        first = 0 if is_sweep else number
        # A process that begins cannot tell how long a lease has stood: it is read at once.
        is_first = self._sweep_at_s == -inf
        self._charted_at_s = context.now_s
        self._chart_again_at_s = context.now_s + context.settings.look_again_s
        turn = context.catalogue.turn
        steps = list_page(keys.pending, before_leases(keys, first))
        page = _decided(await context.driver.run(steps))
        leases = {
            message: Sighting(entry.etag, not entry.size, 0.0 if is_first else entry.modified_s)
            for entry in page.entries
            if (message := message_of(keys, entry.key))
        }
        # The last batch of a page may go on in the next.
        last = max((message.number for message in leases), default=first) - 1
        upto = inf if page.is_last else max(last, first)
        context.catalogue.chart(leases, first=first, upto=upto, turn=turn)
        if is_sweep:
            self._sweep_at_s = context.now_s + _SWEEP_S
            await self._sweep(page.entries)

    async def _sweep(self, entries: Iterable[ListedObject]) -> None:
        """Remove leases that a process left which was closed, or died, before they were old enough,
        or before it confirmed its claims: no batch is there for them. A lease is never made before
        its batch, so that one which is not there now has been. Younger ones stay: a late copy of
        their batch may still arrive.
        """
        context, keys = self._context, self._context.around.keys
        youngest_s = context.earliest_s - context.settings.linger_s
        strays: dict[int, list[str]] = {}
        for entry in entries:
            message = message_of(keys, entry.key)
            if message is None or message.number > self._listed_upto:
                continue
            if entry.modified_s <= youngest_s and not context.catalogue.knows(message.number):
                strays.setdefault(message.number, []).append(entry.key)
        if not strays:
            return
        # All at once: one listing of the batches from the first stray on shows which are there.
        steps = list_page(keys.messages, before_batch(keys, min(strays)))
        page = _decided(await context.driver.run(steps))
        there = {batch.number for entry in page.entries if (batch := batch_of(keys, entry.key))}
        upto = inf if page.is_last else max(there, default=0)
        gone = [number for number in strays if number not in there and number <= upto]
        await context.driver.run(remove_all([key for number in gone for key in strays[number]]))

    async def _read(self, slot: Slot) -> None:
        context, turn = self._context, slot.turn
        steps = read(lease_key(context.around.keys, slot.id), unless=slot.etag)
        there = _decided(await context.driver.run(steps))
        if slot.turn != turn or slot.phase is not SlotPhase.HIDDEN:
            return
        match there:
            case FoundObject() if not there.size:
                context.catalogue.note_done(slot)
            case FoundObject():
                self._note_lease(slot, there)
            case Same():
                context.catalogue.note_ready(slot, slot.etag, slot.lease)
            case Missing():
                # It was removed, or never there. If its batch is gone, a claim will show it.
                context.catalogue.note_ready(slot)

    def _note_lease(self, slot: Slot, there: FoundObject) -> None:
        context, lease = self._context, lease_in(there)
        if lease is None:
            detail = f"the lease of {slot.id} cannot be read; remove it to free its message"
            _log.error(vocabulary.RECEIVE_FAILED, queue=context.facts.name, error=detail)
            context.catalogue.note_foreign_lease(slot, context.earliest_s + _RELIST_S)
        elif lease.expires_s <= context.earliest_s:
            context.catalogue.note_ready(slot, there.etag, lease)
        else:
            context.catalogue.note_lease(slot, there.etag, lease, is_own=False)


def _decided(answer: _T | Undecided) -> _T:
    if isinstance(answer, Undecided):
        raise answer.error
    return answer
