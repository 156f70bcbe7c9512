"""A queue of leases in one process: sends, claims and settlements of all who use it there."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from math import inf
from typing import Any

from pump.errors import GatewayError
from pump.message import Delivery, Message
from pump.outcome import Refusal, Settlement
from pump.ports import QueueStats

from ..layout import QueueFacts, S3QueueSettings, Surroundings
from .catalogue import Catalogue, Habits
from .choosing import Choosing
from .claiming import Claiming
from .codec import BatchId, Content
from .context import Desk, Driver, Holding, Holdings
from .outbox import Outbox
from .overview import Overview
from .scouting import Scout
from .settling import Burial, Settling
from .waiting import Waiting

_SHARED_COUNT = 10
"""How many messages a receive claims at most where others claim too: with more, most claims of
processes that begin in one batch would meet, and be paid for in vain."""

_FINISH_S = 5.0
"""How long the end of a queue waits for the removal of what is done."""


class LeasedQueue:
    """One queue in one process; implements `layout.StoredQueue`. Performs no I/O by itself."""

    def __init__(
        self, facts: QueueFacts, surroundings: Surroundings, settings: S3QueueSettings
    ) -> None:
        self._desk = desk = _desk(facts, surroundings, settings)
        self._burial = Burial(desk)
        self._settling = Settling(desk, self._burial, self._note_change)
        self._claiming = Claiming(desk, self._settling, self._burial)
        self._scout = Scout(desk)
        self._outbox = Outbox(desk, self._note_sent)
        self._overview = Overview(desk)
        self._waiting = Waiting(
            surroundings.clock,
            poll_s=settings.poll_s,
            look=self._tend,
            due_in_s=self._due_in_s,
            ready_count=self._ready_count,
        )
        self._tasks: set[asyncio.Task[None]] = set()
        self._cleaning: asyncio.Task[None] | None = None
        self._is_consumed = False

    async def send(self, messages: Sequence[Message], *, delay_s: float) -> list[str]:
        """`MessageTooLarge` before anything is sent."""
        return await self._outbox.send(messages, delay_s)

    async def receive(self, *, max_count: int, wait_s: float, lease_s: float) -> list[Delivery]:
        """Cancelled, what it was claiming is handed back in the background, uncounted."""
        self._is_consumed = True
        now_s = self._desk.around.clock.now_s
        ends_at_s = now_s() + wait_s
        while True:
            held = await self._take(max_count, lease_s)
            left_s = ends_at_s - now_s()
            if held or left_s <= 0 or self._waiting.is_closed:
                return [each.delivery(self._desk.facts.name) for each in held]
            if not await self._waiting.wait(left_s):
                return []

    async def settle(self, settlements: Sequence[Settlement]) -> list[Refusal]:
        """All side by side."""
        return await self._settling.settle(settlements)

    async def extend(self, deliveries: Sequence[Delivery], *, lease_s: float) -> list[Refusal]:
        """All side by side."""
        return await self._settling.extend(deliveries, lease_s)

    async def stats(self) -> QueueStats:
        """Counted from listings; leases are read up to a limit, beyond it taken as in flight."""
        return await self._overview.stats()

    async def peek(self, *, max_count: int) -> list[Message]:
        """Reads as many batches as it takes."""
        return await self._overview.peek(max_count)

    async def purge(self) -> int:
        """What is sent meanwhile may stay."""
        try:
            return await self._overview.purge()
        finally:
            self._scout.forget()

    async def adopt(self, facts: QueueFacts) -> None:
        """What is held stays held; the rest is looked at anew if the order is another."""
        desk, before = self._desk, self._desk.facts
        desk.facts = facts
        if (facts.is_lifo, facts.is_strict) != (before.is_lifo, before.is_strict):
            desk.catalogue.adopt(_habits(facts, desk.settings, desk.owner))
            self._scout.forget()
        self._waiting.stir()

    async def aclose(self) -> None:
        """Waits for what is under way, and for what cancelled receives hand back."""
        try:
            await self._waiting.aclose()
            await self._outbox.aclose()
            await self._finish()
            while self._tasks:
                await asyncio.wait(self._tasks)
        except asyncio.CancelledError:
            await self._outbox.stop()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            raise

    # Receiving.

    async def _take(self, max_count: int, lease_s: float) -> list[Holding]:
        """Claim in a task of its own: a claim that is under way must be seen to its end."""
        taking = asyncio.create_task(self._claim_some(max_count, lease_s), name="s3 claim")
        try:
            return await asyncio.shield(taking)
        except asyncio.CancelledError:
            self._spawn(self._give_back(taking))
            raise

    async def _claim_some(self, max_count: int, lease_s: float) -> list[Holding]:
        if max_count < 1:
            return []
        desk, asked = self._desk, self._scout.looks
        while True:
            if desk.catalogue.is_shared(desk.earliest_s):
                max_count = min(max_count, _SHARED_COUNT)
                await self._scout.look_around()
            if self._scout.is_stale or desk.choosing.needs(max_count, desk.earliest_s):
                await self._scout.find(max_count, asked)
            picked = desk.choosing.pick(max_count, desk.earliest_s)
            if picked:
                held = await self._claiming.claim(picked, lease_s)
                if held:
                    self._waiting.stir()
                    return held
            elif not await self._scout.find(max_count, asked):
                self._clean_up()
                return []

    async def _give_back(self, taking: asyncio.Task[list[Holding]]) -> None:
        # Its errors are of no interest to anyone any more.
        with suppress(GatewayError):
            await self._settling.give_back(await taking)

    # Waking up.

    async def _tend(self) -> bool:
        """What the timer does: look for those who wait, and bury what had its last delivery."""
        desk, limit = self._desk, self._desk.facts.max_receive_count
        if limit is not None and (dead := desk.choosing.pick_dead(limit, desk.earliest_s)):
            await self._claiming.bury(dead)
        if not self._waiting:
            return False
        has_any = await self._scout.find(1, self._scout.looks)
        self._clean_up()
        return has_any

    def _due_in_s(self) -> float:
        desk = self._desk
        is_watched = bool(self._waiting) or desk.facts.max_receive_count is not None
        if not is_watched:
            return inf
        return desk.catalogue.line.next_due_s() - desk.earliest_s

    def _ready_count(self) -> int:
        desk = self._desk
        if not desk.choosing.has_next(desk.earliest_s):
            return 0
        return 1 if desk.facts.is_strict else desk.catalogue.line.ready_count

    def _note_sent(self, batch: BatchId, content: Content) -> None:
        """What was sent here need not be listed and read here, unless nobody receives here."""
        catalogue = self._desk.catalogue
        if not self._is_consumed:
            return
        catalogue.close(batch, self._desk.around.time.latest_s(), is_charted=True)
        if catalogue.has_room:
            catalogue.open(batch, content, earliest_s=self._desk.earliest_s)
        self._waiting.stir()

    def _note_change(self) -> None:
        self._waiting.stir()
        self._clean_up()

    async def _finish(self) -> None:
        """No body of a message that is done stays behind."""
        with suppress(TimeoutError):
            async with self._desk.around.clock.timeout(_FINISH_S):
                if self._cleaning is not None:
                    await asyncio.wait([self._cleaning])
                await self._scout.look_once_more()
                await self._scout.clean_up()

    # In the background.

    def _clean_up(self) -> None:
        is_busy = self._cleaning is not None and not self._cleaning.done()
        catalogue = self._desk.catalogue
        if not is_busy and (catalogue.to_remove() or catalogue.to_clean_up(self._desk.earliest_s)):
            self._cleaning = self._spawn(self._scout.clean_up())

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work, name="s3 leases")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


def _desk(facts: QueueFacts, around: Surroundings, settings: S3QueueSettings) -> Desk:
    owner = around.new_id()
    catalogue = Catalogue(_habits(facts, settings, owner))
    return Desk(
        facts=facts,
        around=around,
        settings=settings,
        driver=Driver(around.store, around.clock),
        catalogue=catalogue,
        choosing=Choosing(catalogue),
        holdings=Holdings(),
        owner=owner,
    )


def _habits(facts: QueueFacts, settings: S3QueueSettings, owner: str) -> Habits:
    return Habits(
        is_lifo=facts.is_lifo,
        is_strict=facts.is_strict,
        look_again_s=settings.look_again_s,
        cache_bytes=settings.cache_bytes,
        linger_s=settings.linger_s,
        owner=owner,
    )
