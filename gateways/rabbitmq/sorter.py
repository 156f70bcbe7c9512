"""The sorter of a queue with sessions: moves each message into the queue of its group.

Of all gateways that accept sessions of a queue, one sorts at a time: the one that has the lock.

| the sorter | when                                     | and then                               |
|------------|------------------------------------------|----------------------------------------|
| stands by  | another has the lock                     | asks again in half a second            |
| looks up   | it has the lock                          | replaces new queues without a leader   |
| sorts      | it has looked up                         | publishes, notes, then acks, in order; |
|            |                                          | secures new queues before it acks      |
| sweeps     | it has sorted, or has had nothing to do  | notes what lies there, removes empties |
| stops      | its channel died, or its queue is gone   | stands by                              |

A message is acked only after its session has it, on the connection that has the lock. So the
lock's next holder, which alone removes queues, finds in them what was acked here. Dying between
the two leaves a second copy behind, never none.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING

import attrs

from pump.backoff import RECONNECT
from pump.clock import Clock, yield_to_loop
from pump.errors import ConnectionFailed, GatewayError, QueueNotFound
from pump.observability import vocabulary
from pump.observability.log import get_logger
from pump.tasks import look_at

from .connection import MAX_PAUSE_S, RabbitMQLink, close_channel
from .errors import Where, translated
from .names import session_lock, session_queue
from .session_index import NEW, ConsumerSessionLocks, SessionIndex
from .settling import Outstanding
from .topology import LeaderProbe, RegistryEntry
from .wire import Parcel, decode, sorted_in

if TYPE_CHECKING:
    from .amqp import Channel, Received

PREFETCH = 200
STAND_BY_S = 0.5
SWEEP_S = 2.0
SWEEP_COUNT = 50
"""Sessions that are looked at in one go; what is sent meanwhile waits."""
MAX_SESSIONS = 1000
"""Queues that sessions may have at once: each costs the broker memory. Further groups wait."""
CATCH_UP_S = 5.0

_log = get_logger("gateways.rabbitmq")


@attrs.frozen
class _Sorted:
    """A message on its way into a session."""

    group: str
    queue: str
    parcel: Parcel
    tag: int


class _Inbox:
    """What one channel has delivered: tags mean nothing on another."""

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self.outstanding = Outstanding()
        self.woken = asyncio.Event()
        self._received: list[Received] = []
        channel.closing.add_done_callback(lambda _: self.woken.set())

    def __len__(self) -> int:
        return len(self._received)

    async def put(self, received: Received) -> None:
        self.outstanding.add(int(received.delivery_tag or 0))
        self._received.append(received)
        self.woken.set()

    def take(self) -> list[Received]:
        received, self._received = self._received, []
        self.woken.clear()
        return received


class Sorter:
    """Sorts one queue, or stands by; from `start` until `aclose`."""

    def __init__(self, link: RabbitMQLink, index: SessionIndex, clock: Clock) -> None:
        self._link = link
        """A connection of its own, beside that of the sessions: a lock is its connection's."""
        self._index = index
        self._clock = clock
        self._locks = ConsumerSessionLocks(link)
        self._task: asyncio.Task[None] | None = None
        self._has_looked = asyncio.Event()
        self._inbox: _Inbox | None = None
        """While it sorts."""
        self._is_sorting = False
        self._failure_count = 0
        self._known: dict[str, RegistryEntry] = {}
        self._used_at_s: dict[str, float] = {}
        self._empty: set[str] = set()
        """Queues that were free and empty when they were last looked at."""
        self._secured: set[str] = set()
        """Queues that would survive a kill of the broker."""
        self._sweeps_at_s = 0.0
        self._order = 0

    def start(self) -> None:
        """Sort from now on, whenever no other does. Idempotent; raises what has broken it."""
        if self._task is not None and self._task.done():
            self._task.result()
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name="rabbitmq sorter")

    async def aclose(self) -> None:
        """Stop; what was not sorted is another's to sort."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
            look_at(self._task)

    async def caught_up(self) -> None:
        """Return when what was sent before is sorted, as far as this sorter does it. Gives up
        after a few seconds.
        """
        try:
            async with self._clock.timeout(CATCH_UP_S):
                await self._has_looked.wait()
                while self._inbox is not None and await self._is_behind(self._inbox):
                    await self._clock.sleep(0.005)
        except (TimeoutError, GatewayError):
            return

    async def _is_behind(self, inbox: _Inbox) -> bool:
        if self._has_work(inbox) or await self._index.unsorted_count():
            return True
        with translated(self._where("sorting")):
            # What the broker has handed out before it answers this has arrived after it.
            asking = asyncio.ensure_future(inbox.channel.flow(True))
            asking.add_done_callback(look_at)
            await asyncio.shield(asking)
        await yield_to_loop()
        return self._has_work(inbox)

    def _has_work(self, inbox: _Inbox) -> bool:
        return self._is_sorting or len(inbox) > 0

    async def _run(self) -> None:
        while True:
            try:
                await self._tenure()
                self._failure_count = 0
            except GatewayError as error:
                self._failure_count += 1
                _log.warning(vocabulary.RECEIVE_FAILED, queue=self._index.queue, error=str(error))
            self._has_looked.set()
            pause_s = RECONNECT.delay_s(max(self._failure_count, 1), self._clock.chance())
            await self._clock.sleep(max(STAND_BY_S, min(pause_s, MAX_PAUSE_S)))

    async def _tenure(self) -> None:
        from . import amqp

        channel = await self._link.channel()
        try:
            with translated(self._where("sorting")):
                if await amqp.is_locked(channel, self._index.sorter_lock):
                    return
                await self._look_up()
                inbox = await self._subscribed(channel)
            await self._sort_on(inbox)
        finally:
            self._inbox = None
            # The lock stays with the connection: no other sorter gets what is handed back here.
            await close_channel(channel)

    async def _look_up(self) -> None:
        """Learn which queues there are, and replace those that the broker was killed over."""
        entries = await self._index.registry.entries()
        self._known = {each.queue: each for each in entries}
        self._secured = {each.queue for each in entries if each.role != NEW}
        await self._index.mend([each for each in entries if each.queue not in self._secured])

    async def _subscribed(self, channel: Channel) -> _Inbox:
        inbox = _Inbox(channel)
        await channel.basic_qos(prefetch_count=PREFETCH)
        await channel.basic_consume(self._index.queue, inbox.put)
        self._inbox, self._is_sorting = inbox, False
        self._has_looked.set()
        return inbox

    async def _sort_on(self, inbox: _Inbox) -> None:
        # At once: the sorter before may have died over it.
        self._sweeps_at_s = self._clock.now_s()
        self._empty.clear()
        while not inbox.channel.is_closed:
            await self._wait(inbox, self._sweeps_at_s - self._clock.now_s())
            self._is_sorting = True
            await self._sort(inbox)
            self._is_sorting = False
            self._failure_count = 0
            if self._clock.now_s() >= self._sweeps_at_s:
                await self._require_subscription(inbox)
                await self._sweep()
        raise ConnectionFailed(self._link.address, "the sorter's channel was closed")

    async def _require_subscription(self, inbox: _Inbox) -> None:
        """A queue that was removed and made again has none, and the broker need not say so."""
        with translated(self._where("sorting")):
            found = await inbox.channel.queue_declare(self._index.queue, passive=True)
        if not found.consumer_count:
            raise ConnectionFailed(self._link.address, "the sorter's queue is another one now")

    async def _wait(self, inbox: _Inbox, wait_s: float) -> None:
        try:
            async with self._clock.timeout(max(wait_s, 0.0)):
                await inbox.woken.wait()
        except TimeoutError:
            return

    async def _sort(self, inbox: _Inbox) -> None:
        from . import amqp

        part: list[_Sorted] = []
        for received in inbox.take():
            parcel = amqp.parcel_of(received)
            group = decode(parcel).group or ""
            queue = session_queue(self._index.queue, group)
            if queue not in self._known:
                if len(self._known) >= MAX_SESSIONS:
                    # What is sorted so far must be seen before its queue is taken for empty.
                    await self._move(inbox, part)
                    part = []
                    await self._wait_for_room()
                self._known[queue] = await self._index.make(group)
            self._used_at_s[queue] = self._clock.now_s()
            self._empty.discard(queue)
            # By the clock, so that another sorter goes on above it.
            self._order = max(self._order + 1, int(self._clock.time_s() * 1_000_000))
            parcel = sorted_in(parcel, order=self._order)
            part.append(_Sorted(group, queue, parcel, int(received.delivery_tag or 0)))
        await self._move(inbox, part)

    async def _move(self, inbox: _Inbox, part: list[_Sorted]) -> None:
        """Publish, note, then ack; stopping the sorter waits for it, or all of it would be
        there twice.
        """
        if not part:
            return
        moving = asyncio.create_task(self._move_on(inbox, part), name="rabbitmq sorting")
        try:
            await asyncio.shield(moving)
        except asyncio.CancelledError:
            await asyncio.wait([moving])
            look_at(moving)
            raise

    async def _move_on(self, inbox: _Inbox, part: list[_Sorted]) -> None:
        from . import amqp

        try:
            await self._index.send([(each.queue, each.parcel) for each in part])
        except QueueNotFound as error:
            # Removed by an operator, or never made by a sorter that died over it. It is there when
            # the same messages come again.
            for group in {each.group for each in part if each.queue == error.queue}:
                await self._index.make_again(group)
            self._secured.discard(error.queue)
            raise
        await self._index.announce(dict.fromkeys(each.group for each in part))
        await self._secure({each.queue: each.group for each in part})
        with translated(self._where("sorting")):
            tags = [each.tag for each in part]
            await amqp.tell(inbox.channel, inbox.outstanding, done=tags)

    async def _secure(self, groups: Mapping[str, str]) -> None:
        new = groups.keys() - self._secured
        if new:
            await self._index.secure([groups[queue] for queue in new])
            self._secured |= new

    async def _wait_for_room(self) -> None:
        while len(self._known) >= MAX_SESSIONS:
            await self._clock.sleep(STAND_BY_S)
            await self._sweep()

    async def _sweep(self) -> None:
        """Look at every session that nothing was sent to lately."""
        self._known = {each.queue: each for each in await self._index.registry.entries()}
        now_s = self._clock.now_s()
        kept = self._used_at_s.items()
        self._used_at_s = {name: at_s for name, at_s in kept if now_s - at_s < SWEEP_S}
        idle = [each for name, each in self._known.items() if name not in self._used_at_s]
        async with self._index.leader_probe() as probe:
            gone = [each for each in idle[:SWEEP_COUNT] if not await self._is_in_use(each, probe)]
        if gone:
            await self._index.forget(gone)
            for each in gone:
                del self._known[each.queue]
        self._secured &= self._known.keys()
        self._used_at_s |= {each.queue: now_s for each in idle[:SWEEP_COUNT]}
        pause_s = SWEEP_S if len(idle) <= SWEEP_COUNT else STAND_BY_S
        self._sweeps_at_s = self._clock.now_s() + pause_s

    async def _is_in_use(self, entry: RegistryEntry, probe: LeaderProbe) -> bool:
        """Whether a session is held or has messages, or had a moment ago. If not, its queue is
        gone afterwards.

        What a dead owner had in flight is counted nowhere until the broker has taken it back, which
        may be after it took the lock: so only what is empty at the second look is removed, and says
        so itself.
        """
        was_empty = entry.queue in self._empty
        self._empty.discard(entry.queue)
        lock = await self._locks.acquire(session_lock(self._index.queue, entry.of))
        if lock is None:
            return True
        try:
            count = await self._index.count(entry.of)
            if count == 0 and was_empty and await self._index.is_surely_empty(entry, probe):
                await self._index.remove(entry, lock)
                return False
        finally:
            await self._locks.release(lock)
        if count == 0:
            self._empty.add(entry.queue)
        elif count is not None:
            # Its note is lost, or was thrown away while the lock was ours.
            await self._index.announce([entry.of])
        return count is not None

    def _where(self, operation: str) -> Where:
        return Where(self._link.address, operation, self._index.queue)
