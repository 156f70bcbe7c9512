"""A tap: a subscription at the broker for exactly as many messages as one receive asked for.

The broker hands out no more than the tap's prefetch while nothing is settled, and nothing after
it has confirmed the tap's end. So what a tap has caught by then is all there is: nothing waits
unread in a buffer, hidden from others.

A quorum queue goes on handing out while it hears of the end of a tap that has room left, and takes
that back one count older: an attempt that nobody saw, and at the last the message's life. So a tap
has room for what is there, or for one, and is full before it ends. Only one that ends empty, or
that others were quicker to fill theirs from, can still meet a message in that very moment.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from pump.clock import Clock
from pump.ids import new_id

from .outstanding import Outstanding

if TYPE_CHECKING:
    from .amqp import Channel, Received

LONG_S = 1.0


class Tap:
    """What one receive catches."""

    def __init__(self, clock: Clock) -> None:
        self.room = 0
        """For how many it was opened."""
        self.caught: list[tuple[Received, float]] = []
        """With the time of each: leases begin there."""
        self.is_given_up = False
        self._clock = clock
        self._woken = asyncio.Event()

    def catch(self, received: Received) -> None:
        """The broker delivers one."""
        self.caught.append((received, self._clock.now_s()))
        self._woken.set()

    def wake(self) -> None:
        """Wait no longer."""
        self._woken.set()

    def give_up(self) -> None:
        """Nobody wants it any more: end early, and hand back what was caught."""
        self.is_given_up = True
        self._woken.set()

    async def wait(self, wait_s: float) -> None:
        """Return as soon as there is something to see, at the latest after `wait_s`."""
        try:
            async with self._clock.timeout(wait_s):
                await self._woken.wait()
        except TimeoutError:
            return


class Taps:
    """The taps of one channel. A prefetch is that of the next tap: nothing may come between."""

    def __init__(self, channel: Channel, queue: str) -> None:
        self.channel = channel
        self._queue = queue
        self._opening = asyncio.Lock()
        self._prefetch = 0
        self._open: dict[str, Tap] = {}
        self._ending: list[str] = []
        self._closing = asyncio.Lock()
        self.outstanding = Outstanding()
        """What came through this channel and is not settled."""
        channel.on_consumer_cancel_callbacks.add(self._on_cancelled)
        channel.closing.add_done_callback(self._on_closed)

    async def catch(self, tap: Tap, count: int, wait_s: float) -> None:
        """Let up to `count` messages come, until there is one or `wait_s` have passed."""
        tag = await self._open_for(tap, count)
        try:
            if wait_s < LONG_S:
                # A busy broker must not use up a short wait before it has even begun to look.
                await self.channel.flow(True)
            await tap.wait(wait_s)
        finally:
            await self.close(tag)

    async def get(self, tap: Tap, count: int) -> None:
        """Ask for them one by one: only to that RabbitMQ answers that there is nothing."""
        from . import amqp

        while len(tap.caught) < count and not tap.is_given_up:
            received = await self.channel.basic_get(self._queue)
            if amqp.is_empty(received):
                return
            self._caught(tap, received)

    async def get_returned(self, tap: Tap) -> None:
        """Ask for all that was handed out before and came back; the last may be a new one."""
        while not tap.caught or tap.caught[-1][0].redelivered:
            before = len(tap.caught)
            await self.get(tap, before + 1)
            if len(tap.caught) == before:
                return

    async def _open_for(self, tap: Tap, count: int) -> str:
        """Let come what is ready, up to `count`, and one where nothing is."""
        from . import amqp

        async with self._opening:
            tap.room = min(count, max(await self._unpromised(), 1))
            if self._prefetch != tap.room:
                await self.channel.basic_qos(prefetch_count=tap.room)
                self._prefetch = tap.room

            async def on_received(received: Received) -> None:
                self._caught(tap, received)

            tag = new_id()
            self._open[tag] = tap
            await amqp.subscribe(self.channel, self._queue, tag, on_received)
        if self.channel.is_closed:
            tap.wake()
        return tag

    async def _unpromised(self) -> int:
        """How many are ready, less those that open taps have room for."""
        found = await self.channel.queue_declare(self._queue, passive=True)
        promised = sum(tap.room - len(tap.caught) for tap in self._open.values())
        return (found.message_count or 0) - promised

    async def close(self, tag: str) -> None:
        """Return when no more can come. All that end meanwhile are told in one write."""
        self._open.pop(tag, None)
        self._ending.append(tag)
        async with self._closing:
            if tag in self._ending and not self.channel.is_closed:
                from . import amqp

                ending, self._ending = self._ending, []
                await amqp.unsubscribe(self.channel, ending)

    def _caught(self, tap: Tap, received: Received) -> None:
        self.outstanding.add(int(received.delivery_tag or 0))
        tap.catch(received)

    def _on_cancelled(self, frame: object) -> None:
        """The broker has ended it: its queue is gone, or has moved."""
        tap = self._open.get(str(getattr(frame, "consumer_tag", "")))
        if tap is not None:
            tap.wake()

    def _on_closed(self, _: object) -> None:
        for tap in self._open.values():
            tap.wake()
