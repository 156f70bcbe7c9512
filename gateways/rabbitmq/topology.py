"""Where messages are published to: queues, and the delay queues beside them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from pump.clock import Clock
from pump.errors import AccessDenied, PumpError, QueueMismatch, QueueNotFound
from pump.ids import new_id

from .connection import Link
from .errors import Where
from .names import delay_queue, sessions_name, step_ms
from .publisher import Fate, Publisher
from .queue_arguments import delay_arguments, scratch_arguments
from .registry import REGISTRY, Entry, Registry
from .wire import Parcel

DELAY = "delay"
"""What a delay queue is in the registry."""
_DELAYS = "*delays"
"""What publishes to delay queues, of which there are too many for a channel each; no queue is
called so."""
DECLARED_FOR_S = 3600.0
"""How long a delay queue is taken for granted: well within the day it lives unused."""
_SCRATCH = "pump.scratch"
_WRITTEN_BY_ITSELF_S = 2.0
"""Twice as long as RabbitMQ takes to write a new queue down by itself, when it is left alone."""


class Topology:
    """Publishes to queues, at once or after a stay beside them; makes what it needs for that.

    Publishing has a connection of its own: a broker that is short of memory or disk stops
    reading from those that publish, and acks must still get through.
    """

    def __init__(self, link: Link, publishing: Link, clock: Clock, *, patience_s: float) -> None:
        self._link = link
        self._publishing = publishing
        self._clock = clock
        self._patience_s = patience_s
        self._publishers: dict[str, Publisher] = {}
        self._declared_at_s: dict[str, float] = {}
        self._declaring = asyncio.Lock()
        self._sessions: dict[str, Registry] = {}
        self.registry = Registry(link, self.publisher(REGISTRY), clock)

    async def publish(
        self, queue: str, parcels: Sequence[Parcel], *, delay_s: float = 0.0
    ) -> list[Fate]:
        """What became of each; all are confirmed, or their error says why not."""
        if not parcels:
            return []
        if delay_s <= 0:
            return await self.publisher(queue).publish(queue, parcels)
        ttl_ms = step_ms(delay_s)
        stay = delay_queue(queue, ttl_ms)
        await self._declare_stay(queue, stay, ttl_ms)
        publisher = self.publisher(_DELAYS)
        fates = await publisher.publish(stay, parcels)
        gone = [at for at, fate in enumerate(fates) if isinstance(fate, QueueNotFound)]
        if gone:
            # Removed under our feet, by a broker that was set up anew or by a person.
            self._declared_at_s.pop(stay, None)
            await self._declare_stay(queue, stay, ttl_ms)
            repeated = await publisher.publish(stay, [parcels[at] for at in gone])
            for at, fate in zip(gone, repeated, strict=True):
                fates[at] = fate
        return fates

    async def count(self, queue: str) -> int:
        """How many messages are ready in a queue; `QueueNotFound` when there is none."""
        async with self._link.brief_channel(self._where("declaring", queue)) as channel:
            found = await channel.queue_declare(queue, passive=True)
            return found.message_count or 0

    async def secure(self) -> None:
        """Return when every queue that was declared before this call would survive a kill of the
        broker, with what is confirmed in it.

        RabbitMQ writes the name of a new quorum queue into the directory of its logs up to a
        second after it has declared it. Killed before that, it comes back with the queue and
        without its messages, confirmed or not. Declaring one more writes those before it at once.
        """
        name = f"{_SCRATCH}.{new_id()}"
        try:
            async with self._link.brief_channel(self._where("declaring", name)) as channel:
                await channel.queue_declare(name, durable=True, arguments=scratch_arguments())
                await channel.queue_delete(name)
        except (AccessDenied, QueueMismatch):
            # Not allowed, or one queue too many for the virtual host.
            await self._clock.sleep(_WRITTEN_BY_ITSELF_S)

    async def stays_of(self, queue: str, *, is_estimate: bool) -> list[str]:
        """The delay queues beside a queue."""
        entries = await self.registry.entries(is_estimate=is_estimate)
        return sorted(each.queue for each in entries if each.of == queue and each.role == DELAY)

    async def has_sessions(self, queue: str) -> bool:
        """Whether sessions of a queue were ever accepted, as far as was known a moment ago."""
        entries = await self.registry.entries(is_estimate=True)
        return any(each.queue == sessions_name(queue) and each.of == queue for each in entries)

    def sessions_of(self, queue: str) -> Registry:
        """Which queues the sessions of a queue have; always the same one."""
        name = sessions_name(queue)
        if queue not in self._sessions:
            self._sessions[queue] = Registry(
                self._link, self.publisher(name), self._clock, name=name
            )
        return self._sessions[queue]

    async def aclose(self) -> None:
        """Close the channels that were needed."""
        await asyncio.gather(*(each.aclose() for each in self._publishers.values()))

    def publisher(self, purpose: str) -> Publisher:
        """What publishes to a queue, or for another purpose; always the same one."""
        if purpose not in self._publishers:
            self._publishers[purpose] = Publisher(
                self._publishing, clock=self._clock, patience_s=self._patience_s
            )
        return self._publishers[purpose]

    async def _declare_stay(self, queue: str, stay: str, ttl_ms: int) -> None:
        async with self._declaring:
            since_s = self._clock.now_s() - self._declared_at_s.get(stay, float("-inf"))
            if since_s < DECLARED_FOR_S:
                return
            # A delay queue that leads nowhere would keep its messages from everybody.
            await self.count(queue)
            async with self._link.brief_channel(self._where("declaring", stay)) as channel:
                arguments = delay_arguments(queue, ttl_ms, server=self._link.server)
                await channel.queue_declare(stay, durable=True, arguments=arguments)
                # To declare a quorum queue again, or to publish to it, does not put off its end;
                # only to receive from it does. What comes goes back as the channel closes.
                await channel.basic_get(stay)
            await self.secure()
            await self.registry.add(Entry(stay, of=queue, role=DELAY))
            self._declared_at_s[stay] = self._clock.now_s()

    def _where(self, operation: str, queue: str) -> Where:
        return Where(self._link.address, operation, queue)


def first_error(fates: Sequence[Fate]) -> PumpError | None:
    """The first thing that went wrong."""
    return next((fate for fate in fates if fate is not None), None)
