"""The soak: many workers, each doing something else with one queue, and a count at the end."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable, Sequence

import attrs

from ...clock import yield_to_loop
from ...message import Delivery
from ...outcome import Refusal, Settlement
from ...ports import ConsumerPort
from ..builders import a_message, abandon, ack, defer
from .rig import Channel, Rig


@attrs.define(eq=False)
class Soak:
    """Mixed operations on one queue; `sent`, `acked` and what `drain` finds must add up.

    `shared` names every message that was delivered while somebody held a lease on it.
    """

    rig: Rig
    queue: Channel
    seed: int = attrs.field(kw_only=True)
    sent: list[str] = attrs.field(factory=list)
    acked: list[str] = attrs.field(factory=list)
    shared: list[str] = attrs.field(factory=list)
    _held_until_s: dict[str, float] = attrs.field(factory=dict, init=False)

    async def run(self, *, workers: int, steps: int) -> None:
        """Let so many workers take so many steps each, while time passes."""
        work = [self.rig.start(self._work(number, steps)) for number in range(workers)]
        for _ in range(steps):
            await self.rig.clock.advance(self.rig.tick_s / 4)
        while not all(task.done() for task in work):
            await self.rig.clock.advance(self.rig.tick_s)
        await asyncio.gather(*work)

    async def drain(self) -> list[str]:
        """The ids of all messages that are left, once every lease and delay is over."""
        remaining: list[str] = []
        for _ in range(2):
            await self.rig.advance(self.rig.lease_s + self.rig.tick_s)
            remaining += [each.id for each in await self.queue.take_and_ack(len(self.sent) + 1)]
        return remaining

    async def _work(self, number: int, steps: int) -> None:
        chance = random.Random(f"{self.seed}/{number}")
        consumer = self.queue.another_consumer()
        for _ in range(steps):
            step = chance.choice(self._steps())
            await step(consumer, chance)
            await yield_to_loop()

    def _steps(self) -> list[Callable[[ConsumerPort, random.Random], Awaitable[None]]]:
        return [
            self._send,
            self._send,
            self._ack,
            self._ack,
            self._give_back,
            self._forget,
            self._extend,
            self._ack_late,
            self._cancel,
            self._look,
        ]

    async def _send(self, consumer: ConsumerPort, chance: random.Random) -> None:
        messages = [a_message() for _ in range(chance.randrange(1, 5))]
        self.sent += [each.id for each in messages]
        delay_s = chance.choice([0.0, 0.0, self.rig.tick_s])
        await self.queue.send(*messages, delay_s=delay_s)

    async def _receive(self, consumer: ConsumerPort, chance: random.Random) -> list[Delivery]:
        wait_s = chance.choice([0.0, self.rig.tick_s / 2])
        received = await consumer.receive(max_count=chance.randrange(1, 4), wait_s=wait_s)
        for each in received:
            # A lease's end, as a client knows it, is late by the time the answer took.
            held_for_s = self._held_until_s.get(each.message.id, 0.0) - self.rig.clock.now_s()
            if held_for_s > self.rig.slack_s + 1e-6:
                self.shared.append(each.message.id)
            self._held_until_s[each.message.id] = each.lease_expires_at_s
        return list(received)

    async def _settle(
        self, consumer: ConsumerPort, settlements: list[Settlement]
    ) -> Sequence[Refusal]:
        # Whatever becomes of it, from here on another one may have it.
        for settlement in settlements:
            self._held_until_s.pop(settlement.delivery.message.id, None)
        return await consumer.settle(settlements)

    async def _settle_acks(self, consumer: ConsumerPort, deliveries: list[Delivery]) -> None:
        refused = await self._settle(consumer, [ack(each) for each in deliveries])
        lost = {id(refusal.delivery) for refusal in refused}
        self.acked += [each.message.id for each in deliveries if id(each) not in lost]

    async def _ack(self, consumer: ConsumerPort, chance: random.Random) -> None:
        await self._settle_acks(consumer, await self._receive(consumer, chance))

    async def _ack_late(self, consumer: ConsumerPort, chance: random.Random) -> None:
        received = await self._receive(consumer, chance)
        for _ in range(chance.randrange(40)):
            await yield_to_loop()
        await self._settle_acks(consumer, received)

    async def _give_back(self, consumer: ConsumerPort, chance: random.Random) -> None:
        settlements: list[Settlement] = []
        for delivery in await self._receive(consumer, chance):
            delay_s = chance.choice([0.0, self.rig.tick_s])
            settlements.append(chance.choice([abandon(delivery), defer(delivery, seconds=delay_s)]))
        await self._settle(consumer, settlements)

    async def _forget(self, consumer: ConsumerPort, chance: random.Random) -> None:
        await self._receive(consumer, chance)

    async def _extend(self, consumer: ConsumerPort, chance: random.Random) -> None:
        received = await self._receive(consumer, chance)
        await consumer.extend(received, lease_s=self.rig.lease_s)
        await self._settle_acks(consumer, received)

    async def _cancel(self, consumer: ConsumerPort, chance: random.Random) -> None:
        receiving = asyncio.ensure_future(self._receive(consumer, chance))
        for _ in range(chance.randrange(6)):
            await yield_to_loop()
        receiving.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._settle_acks(consumer, await receiving)

    async def _look(self, consumer: ConsumerPort, chance: random.Random) -> None:
        await self.rig.stats(self.queue.name)
        if self.rig.capabilities.has_peek:
            await self.rig.admin.peek(self.queue.name, max_count=3)
