"""A queue of leases in one process: its sends, claims and settlements."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from math import inf

import attrs

from pump.clock import Clock, Timer
from pump.errors import ConnectionFailed, GatewayError
from pump.message import Delivery, Message
from pump.outcome import Refusal, Settlement
from pump.ports import QueueStats
from pump.tasks import BackgroundTasks

from ..layout import QueueDescription, S3QueueSettings, Surroundings
from ..store.objects import FoundObject, ListedObject, Missing
from .catalogue import Catalogue, QueuePolicy, known_leases
from .choosing import Choosing
from .claiming import Claiming
from .codec import (
    BatchContent,
    BatchedMessage,
    BatchId,
    LeaseObject,
    MessageId,
    batch_key,
    batch_of,
    lease_key,
    message_of,
)
from .context import HeldLease, HeldLeases, LeaseQueueContext, ProtocolDriver
from .discovery import MessageDiscovery
from .outbox import Outbox
from .protocol import Undecided, lease_in, read, read_batch, remove_all, survey
from .settling import LeaseDeadLetterMover, LeaseSettling

_SHARED_COUNT = 10
"""How many messages a receive claims at most where others claim too: with more, most claims of
processes that begin in one batch would meet, and be paid for in vain."""

_FINISH_S = 5.0
"""How long the end of a queue waits for the removal of what is done."""


class LeasedQueue:
    """One queue in one process; implements `layout.StoredQueue`. Performs no I/O by itself."""

    def __init__(
        self, facts: QueueDescription, surroundings: Surroundings, settings: S3QueueSettings
    ) -> None:
        self._context = context = _context(facts, surroundings, settings)
        self._mover = LeaseDeadLetterMover(context)
        self._settling = LeaseSettling(context, self._mover, self._note_change)
        self._claiming = Claiming(context, self._settling, self._mover)
        self._discovery = MessageDiscovery(context)
        self._outbox = Outbox(context, self._note_sent)
        self._overview = Overview(context)
        self._waiting = Waiting(
            surroundings.clock,
            poll_s=settings.poll_s,
            look=self._tend,
            due_in_s=self._due_in_s,
            ready_count=self._ready_count,
        )
        self._tasks = BackgroundTasks("s3 leases", is_awaited=False)
        self._cleaning: asyncio.Task[None] | None = None
        self._is_consumed = False

    async def send(self, messages: Sequence[Message], *, delay_s: float) -> list[str]:
        """`MessageTooLarge` before anything is sent."""
        return await self._outbox.send(messages, delay_s)

    async def receive(self, *, max_count: int, wait_s: float, lease_s: float) -> list[Delivery]:
        """Cancelled, what it was claiming is handed back in the background, uncounted."""
        self._is_consumed = True
        now_s = self._context.around.clock.now_s
        ends_at_s = now_s() + wait_s
        while True:
            held = await self._take(max_count, lease_s)
            left_s = ends_at_s - now_s()
            if held or left_s <= 0 or self._waiting.is_closed:
                return [each.delivery(self._context.facts.name) for each in held]
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
            self._discovery.forget()

    async def adopt(self, facts: QueueDescription) -> None:
        """What is held stays held; the rest is looked at anew if the order is another."""
        context, before = self._context, self._context.facts
        context.facts = facts
        if (facts.is_lifo, facts.is_strict) != (before.is_lifo, before.is_strict):
            context.catalogue.adopt(_policy(facts, context.settings, context.owner))
            self._discovery.forget()
        self._waiting.notify()

    async def aclose(self) -> None:
        """Waits for what is under way, and for what cancelled receives hand back."""
        try:
            await self._waiting.aclose()
            await self._outbox.aclose()
            await self._finish()
            await self._tasks.finish()
        except asyncio.CancelledError:
            await self._outbox.stop()
            await self._tasks.abort()
            raise

    # Receiving.

    async def _take(self, max_count: int, lease_s: float) -> list[HeldLease]:
        """Claim in a task of its own: a claim that is under way must be seen to its end."""
        taking = asyncio.create_task(self._claim_some(max_count, lease_s), name="s3 claim")
        try:
            return await asyncio.shield(taking)
        except asyncio.CancelledError:
            self._tasks.start(self._give_back(taking), "give back")
            raise

    async def _claim_some(self, max_count: int, lease_s: float) -> list[HeldLease]:
        if max_count < 1:
            return []
        context, asked = self._context, self._discovery.looks
        while True:
            if context.catalogue.is_shared(context.earliest_s):
                max_count = min(max_count, _SHARED_COUNT)
                await self._discovery.look_around()
            if self._discovery.is_stale or context.choosing.needs(max_count, context.earliest_s):
                await self._discovery.find(max_count, asked)
            picked = context.choosing.pick(max_count, context.earliest_s)
            if picked:
                held = await self._claiming.claim(picked, lease_s)
                if held:
                    self._waiting.notify()
                    return held
            elif not await self._discovery.find(max_count, asked):
                self._clean_up()
                return []

    async def _give_back(self, taking: asyncio.Task[list[HeldLease]]) -> None:
        # Its caller is gone, so its errors are dropped.
        with suppress(GatewayError):
            await self._settling.give_back(await taking)

    # Waking up.

    async def _tend(self) -> bool:
        """What the timer does: look for waiting receives, and move what had its last delivery."""
        context, limit = self._context, self._context.facts.max_receive_count
        if limit is not None and (dead := context.choosing.pick_dead(limit, context.earliest_s)):
            await self._claiming.dead_letter(dead)
        if not self._waiting:
            return False
        has_any = await self._discovery.find(1, self._discovery.looks)
        self._clean_up()
        return has_any

    def _due_in_s(self) -> float:
        context = self._context
        is_watched = bool(self._waiting) or context.facts.max_receive_count is not None
        if not is_watched:
            return inf
        return context.catalogue.order.next_due_s() - context.earliest_s

    def _ready_count(self) -> int:
        context = self._context
        if not context.choosing.has_next(context.earliest_s):
            return 0
        return 1 if context.facts.is_strict else context.catalogue.order.ready_count

    def _note_sent(self, batch: BatchId, content: BatchContent) -> None:
        """What was sent here need not be listed and read here, if this process receives too."""
        catalogue = self._context.catalogue
        if not self._is_consumed:
            return
        catalogue.close(batch, self._context.around.time.latest_s(), is_charted=True)
        if catalogue.has_room:
            catalogue.open(batch, content, earliest_s=self._context.earliest_s)
        self._waiting.notify()

    def _note_change(self) -> None:
        self._waiting.notify()
        self._clean_up()

    async def _finish(self) -> None:
        """No body of a message that is done stays behind."""
        with suppress(TimeoutError):
            async with self._context.around.clock.timeout(_FINISH_S):
                if self._cleaning is not None:
                    await asyncio.wait([self._cleaning])
                await self._discovery.look_once_more()
                await self._discovery.clean_up()

    # In the background.

    def _clean_up(self) -> None:
        is_busy = self._cleaning is not None and not self._cleaning.done()
        catalogue = self._context.catalogue
        if not is_busy and (
            catalogue.to_remove() or catalogue.to_clean_up(self._context.earliest_s)
        ):
            self._cleaning = self._tasks.start(self._discovery.clean_up(), "clean up")


def _context(
    facts: QueueDescription, around: Surroundings, settings: S3QueueSettings
) -> LeaseQueueContext:
    owner = around.new_id()
    catalogue = Catalogue(_policy(facts, settings, owner))
    return LeaseQueueContext(
        facts=facts,
        around=around,
        settings=settings,
        driver=ProtocolDriver(around.store, around.clock),
        catalogue=catalogue,
        choosing=Choosing(catalogue),
        held_leases=HeldLeases(),
        owner=owner,
    )


def _policy(facts: QueueDescription, settings: S3QueueSettings, owner: str) -> QueuePolicy:
    return QueuePolicy(
        is_lifo=facts.is_lifo,
        is_strict=facts.is_strict,
        look_again_s=settings.look_again_s,
        cache_bytes=settings.cache_bytes,
        linger_s=settings.linger_s,
        owner=owner,
    )


# Waiting: receives that found nothing sleep until there is a reason to look again.
#
# One timer serves them all: for what is known to be due, and for a look at what others do, after a
# pause that doubles while nothing is found. Sends and settlements of this process wake them at
# once.

_FIRST_PAUSE_S = 0.1
_LEAST_PAUSE_S = 0.001
"""What is due by the store's clock may seem not quite due by ours, which may run slower."""


class Waiting:
    """The receives that wait for messages of one queue.

    `look` finds out whether there are any; `due_in_s` says when something is due at the latest.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        poll_s: float,
        look: Callable[[], Awaitable[bool]],
        due_in_s: Callable[[], float],
        ready_count: Callable[[], int],
    ) -> None:
        self._clock = clock
        self._poll_s = poll_s
        self._look = look
        self._due_in_s = due_in_s
        self._ready_count = ready_count
        self._waiters: deque[asyncio.Future[bool]] = deque()
        self._pause_s = _FIRST_PAUSE_S
        self._timer: Timer | None = None
        self._timer_due_s = inf
        self._looking: asyncio.Task[None] | None = None
        self._is_closed = False

    @property
    def is_closed(self) -> bool:
        """Whether receives may not wait any more."""
        return self._is_closed

    def __bool__(self) -> bool:
        return bool(self._waiters)

    async def wait(self, wait_s: float) -> bool:
        """Wait for a reason to try again; False when `wait_s` have passed without one. Raises
        what a look raised.
        """
        woken: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        timer = self._clock.call_later(wait_s, lambda: _resolve(woken, False))
        if not self._waiters:
            self._pause_s = min(_FIRST_PAUSE_S, self._poll_s)
        self._waiters.append(woken)
        self.arm()
        try:
            return await woken
        except asyncio.CancelledError:
            # Woken, then cancelled before it could try: the reason is another's now.
            if woken.done() and not woken.cancelled():
                self.notify()
            raise
        finally:
            timer.cancel()
            if woken in self._waiters:
                self._waiters.remove(woken)

    def notify(self) -> None:
        """Something may have become available: wake as many waiters as there are messages for."""
        count = self._ready_count() if self._waiters else 0
        while count > 0 and self._waiters:
            count -= _resolve(self._waiters.popleft(), True)
        self.arm()

    def arm(self) -> None:
        """Set the timer for the next reason to look."""
        if self._is_closed or self._is_busy:
            return
        delay_s = min(self._due_in_s(), self._pause_s if self._waiters else inf)
        delay_s = max(_LEAST_PAUSE_S, delay_s)
        due_s = self._clock.now_s() + delay_s
        if due_s >= self._timer_due_s:
            return
        self._disarm()
        if due_s < inf:
            self._timer_due_s = due_s
            self._timer = self._clock.call_later(delay_s, self._ring)

    async def aclose(self) -> None:
        """Return every waiting receive empty, and end what runs."""
        self._is_closed = True
        self._disarm()
        while self._waiters:
            _resolve(self._waiters.popleft(), False)
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.wait([self._looking])

    @property
    def _is_busy(self) -> bool:
        return self._looking is not None and not self._looking.done()

    def _ring(self) -> None:
        self._timer = None
        self._timer_due_s = inf
        if not self._is_closed and not self._is_busy:
            self._looking = asyncio.create_task(self._tend(), name="s3 look")
            self._looking.add_done_callback(lambda _: self.notify())

    async def _tend(self) -> None:
        self._pause_s = min(2 * self._pause_s, self._poll_s)
        try:
            if await self._look():
                self._pause_s = min(_FIRST_PAUSE_S, self._poll_s)
        except Exception as error:  # broad: the waiters get it, whatever it is
            while self._waiters:
                waiter = self._waiters.popleft()
                if not waiter.done():
                    waiter.set_exception(error)

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._timer_due_s = inf


def _resolve(woken: asyncio.Future[bool], result: bool) -> bool:
    if woken.done():
        return False
    woken.set_result(result)
    return True


# The overview: what a queue holds, looked at and counted without touching it; and its end.

_MAX_LEASES = 100
_MAX_BATCHES = 16
"""How much is read for an estimate."""


@attrs.frozen
class _View:
    """A queue as two listings show it."""

    batches: Mapping[BatchId, ListedObject]
    leases: Mapping[MessageId, ListedObject]

    def messages(self, *, is_lifo: bool = False) -> Iterator[tuple[BatchId, MessageId]]:
        """Those that are not done, in the order in which they are to be had."""
        for batch in sorted(self.batches, key=lambda each: each.number, reverse=is_lifo):
            places = range(batch.count)
            for place in reversed(places) if is_lifo else places:
                message = MessageId(batch.number, place)
                entry = self.leases.get(message)
                if entry is None or entry.size:
                    yield batch, message


class Overview:
    """Counts, shows and empties one queue."""

    def __init__(self, context: LeaseQueueContext) -> None:
        self._context = context

    async def stats(self) -> QueueStats:
        """An estimate: what was not read counts as in flight if it has a lease, else as visible."""
        view = await self._view()
        messages = list(view.messages())
        leased = [message for _, message in messages if message in view.leases]
        leases = await self._leases(view, leased[:_MAX_LEASES])
        contents = await self._contents([batch for batch, _ in messages], _MAX_BATCHES)
        earliest_s = self._context.earliest_s
        counts = {"visible": 0, "in_flight": 0, "delayed": 0}
        for batch, message in messages:
            lease = leases.get(message)
            batched = _batched(contents, batch, message)
            counts[_state(lease, message in view.leases, batched, earliest_s)] += 1
        oldest_s = min((view.batches[batch].modified_s for batch, _ in messages), default=None)
        age_s = None if oldest_s is None else max(0.0, earliest_s - oldest_s)
        return QueueStats(name=self._context.facts.name, oldest_age_s=age_s, **counts)

    async def peek(self, max_count: int) -> list[Message]:
        """The next messages that could be had."""
        view = await self._view()
        found: list[Message] = []
        in_order = list(view.messages(is_lifo=self._context.facts.is_lifo))
        for start in range(0, len(in_order), _MAX_LEASES):
            some = in_order[start : start + _MAX_LEASES]
            leases = await self._leases(view, [each for _, each in some if each in view.leases])
            contents = await self._contents([batch for batch, _ in some], len(some))
            for batch, message in some:
                batched = _batched(contents, batch, message)
                is_leased = message in view.leases
                state = _state(leases.get(message), is_leased, batched, self._context.earliest_s)
                if batched is not None and state == "visible":
                    found.append(batched.open())
                if len(found) == max_count:
                    return found
        return found

    async def purge(self) -> int:
        """Remove every batch that is there now, then its leases; how many messages there were.

        A consumer that holds one finds its lease gone. A lease whose batch is not listed is left:
        the batch may just have come.
        """
        context, view = self._context, await self._view()
        numbers = {batch.number for batch in view.batches}
        batches = [batch_key(context.around.keys, batch) for batch in view.batches]
        for number in numbers:
            context.catalogue.drop(number)
        if not await context.driver.run(remove_all(batches)):
            raise ConnectionFailed(context.facts.name, "not all of it was removed; purge it again")
        # Listed again: claims that have come since cannot be confirmed any more.
        leases = (await self._view()).leases
        doomed = [lease_key(context.around.keys, each) for each in leases if each.number in numbers]
        await context.driver.run(remove_all(doomed))
        return sum(1 for _ in view.messages())

    async def _view(self) -> _View:
        keys = self._context.around.keys
        seen = await self._context.driver.run(survey(keys))
        if isinstance(seen, Undecided):
            raise seen.error
        batches = {batch: entry for entry in seen[0] if (batch := batch_of(keys, entry.key))}
        leases = {message: entry for entry in seen[1] if (message := message_of(keys, entry.key))}
        return _View(batches, leases)

    async def _leases(
        self, view: _View, wanted: Sequence[MessageId]
    ) -> dict[MessageId, LeaseObject]:
        known = known_leases(self._context.catalogue)
        answers = await asyncio.gather(
            *(self._lease(message, known.get(view.leases[message].etag)) for message in wanted)
        )
        return {
            message: lease
            for message, lease in zip(wanted, answers, strict=True)
            if lease is not None
        }

    async def _lease(self, message: MessageId, known: LeaseObject | None) -> LeaseObject | None:
        if known is not None:
            return known
        there = await self._context.driver.run(read(lease_key(self._context.around.keys, message)))
        return lease_in(there) if isinstance(there, FoundObject) else None

    async def _contents(
        self, batches: Sequence[BatchId], max_reads: int
    ) -> dict[BatchId, BatchContent]:
        contents: dict[BatchId, BatchContent] = {}
        unread: list[BatchId] = []
        for batch in dict.fromkeys(batches):
            opened = self._context.catalogue.opened.get(batch.number)
            if opened is not None and opened.content is not None:
                contents[batch] = opened.content
            else:
                unread.append(batch)
        keys = self._context.around.keys
        chosen = unread[:max_reads]
        reading = (self._context.driver.run(read_batch(batch_key(keys, batch))) for batch in chosen)
        for batch, there in zip(chosen, await asyncio.gather(*reading), strict=True):
            if not isinstance(there, Missing | Undecided):
                contents[batch] = there
        return contents


def _batched(
    contents: Mapping[BatchId, BatchContent], batch: BatchId, message: MessageId
) -> BatchedMessage | None:
    content = contents.get(batch)
    has_it = content is not None and message.place < len(content.messages)
    return content.messages[message.place] if content is not None and has_it else None


def _state(
    lease: LeaseObject | None, is_leased: bool, batched: BatchedMessage | None, earliest_s: float
) -> str:
    """What a message that is not done counts as."""
    if lease is None:
        if is_leased:
            return "in_flight"
        is_delayed = batched is not None and batched.visible_at_s > earliest_s
        return "delayed" if is_delayed else "visible"
    if lease.expires_s <= earliest_s:
        return "visible"
    return "in_flight" if lease.is_held else "delayed"
