"""Which queues there are: AMQP cannot say, so their names are kept in a queue of their own.

`pump.queues` holds one message a queue that a gateway has made, delay queues included; a queue
with sessions has another one, of the queues that its sessions have. Reading it is receiving all of
it, alone, and letting go of the channel, which puts everything back. What is there twice, or is
told to be gone, is taken out on the way.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Collection
from typing import TYPE_CHECKING

import attrs

from pump.backoff import RECONNECT
from pump.clock import Clock
from pump.errors import AccessDenied, GatewayError
from pump.message import new_id

from .connection import RabbitMQLink
from .errors import Where
from .publisher import Publisher
from .wire import Parcel

if TYPE_CHECKING:
    from .amqp import Channel, Received

REGISTRY = "pump.queues"
FRESH_FOR_S = 30.0
"""How long an earlier look at the registry will do for an estimate."""
_TRIES = 12
_READING_S = 5.0


@attrs.frozen(order=True)
class RegistryEntry:
    """A queue, and whose delay queue it is, or what else it is one of."""

    queue: str
    of: str = ""
    role: str = ""


class Registry:
    """The queues that gateways have made, and those that this one was told of.

    Where this user may not keep such a queue, only the latter.
    """

    def __init__(
        self, link: RabbitMQLink, publisher: Publisher, clock: Clock, *, name: str = REGISTRY
    ) -> None:
        self._link = link
        self._publisher = publisher
        self._name = name
        self._clock = clock
        self._told: set[RegistryEntry] = set()
        self._written: set[RegistryEntry] = set()
        self._read_at_s: float | None = None
        self._reading = asyncio.Lock()

    def note(self, queue: str) -> None:
        """Know of a queue that others may have made; in this gateway only."""
        self._told.add(RegistryEntry(queue))

    async def add(self, entry: RegistryEntry) -> None:
        """Make it known to every client, unless it is."""
        self._told.add(entry)
        if self._read_at_s is None:
            await self.entries()
        if entry in self._written:
            return
        try:
            await self.write(entry)
        except GatewayError:
            # The queue is there all the same; the next `ensure` tries again.
            return

    async def write(self, entry: RegistryEntry) -> None:
        """Make it known to every client, again if need be; raises when that cannot be done."""
        if self._read_at_s is None:
            await self.entries()
        body = json.dumps(attrs.asdict(entry)).encode()
        parcel = Parcel(body=body, properties={"message_id": new_id()})
        [fate] = await self._publisher.publish(self._name, [parcel])
        if fate is not None:
            raise fate
        self._written.add(entry)

    async def entries(self, *, is_estimate: bool = False) -> set[RegistryEntry]:
        """All that are known; for an estimate those of a moment ago will do."""
        async with self._reading:
            if not (is_estimate and self._is_fresh()):
                self._written = await self._read(gone=())
            return self._written | self._told

    async def remove(self, gone: Collection[RegistryEntry]) -> None:
        """Forget queues that are no more."""
        self._told.difference_update(gone)
        if self._written.isdisjoint(gone):
            return
        async with self._reading:
            self._written = await self._read(gone=gone)

    def _is_fresh(self) -> bool:
        return self._read_at_s is not None and self._clock.now_s() - self._read_at_s < FRESH_FOR_S

    async def _read(self, *, gone: Collection[RegistryEntry]) -> set[RegistryEntry]:
        for attempt in range(1, _TRIES + 1):
            try:
                return await self._read_alone(gone)
            except AccessDenied:
                # Another client reads it, or we may not.
                if attempt == _TRIES:
                    break
            await self._clock.sleep(min(RECONNECT.delay_s(attempt, self._clock.chance()), 0.5))
        return self._written

    async def _read_alone(self, gone: Collection[RegistryEntry]) -> set[RegistryEntry]:
        where = Where(self._link.address, "reading", self._name)
        async with self._link.brief_channel(where) as channel:
            declared = await channel.queue_declare(
                self._name, durable=True, arguments={"x-queue-type": "classic"}
            )
            found: list[Received] = []
            await self._receive_all(channel, found, declared.message_count or 0)
            kept, superfluous = _sorted_out(found, gone)
            for tag in superfluous:
                await channel.basic_ack(tag, wait=False)
        self._read_at_s = self._clock.now_s()
        return kept

    async def _receive_all(self, channel: Channel, found: list[Received], count: int) -> None:
        has_all = asyncio.Event()

        async def on_received(received: Received) -> None:
            found.append(received)
            if len(found) >= count:
                has_all.set()

        await channel.basic_consume(self._name, on_received, exclusive=True)
        if count:
            try:
                async with self._clock.timeout(_READING_S):
                    await has_all.wait()
            except TimeoutError:
                return


def _sorted_out(
    found: list[Received], gone: Collection[RegistryEntry]
) -> tuple[set[RegistryEntry], list[int]]:
    """The entries, and the delivery tags of what says nothing new."""
    kept: set[RegistryEntry] = set()
    superfluous: list[int] = []
    for received in found:
        entry = _entry(received.body)
        if entry is None or entry in kept or entry in gone:
            superfluous.append(int(received.delivery_tag or 0))
        else:
            kept.add(entry)
    return kept, superfluous


def _entry(body: bytes) -> RegistryEntry | None:
    try:
        match json.loads(body):
            case {"queue": str(queue), "of": str(of), **rest}:
                return RegistryEntry(queue, of, str(rest.get("role", "")))
    except ValueError:
        return None
    return None
