"""A queue under random use: order, exclusiveness, and nothing lost, whatever the disk does."""

from __future__ import annotations

import random
from collections.abc import Iterable

import pytest

from gateways.sqs_server.engine import Queue
from gateways.sqs_server.model import Received
from pump.errors import StorageFailed
from pump.testing.virtual_clock import VirtualClock

from ..engine.shop import PatientStore, Shop, redrive

GROUPS = "abc"
STEPS = 300


class Witness:
    """Knows from the answers alone what must be there, and who has it."""

    def __init__(self, dead: Queue | None) -> None:
        self.present: dict[str, list[str]] = {group: [] for group in GROUPS}
        """What was sent and neither deleted nor dead-lettered, in order."""
        self.held: dict[str, tuple[Received, float]] = {}
        """What is in flight: its last receive, and until when."""
        self._dead = dead

    def look(self, now_s: float) -> None:
        """Take note of what time and the redrive policy have done."""
        self.held = {b: held for b, held in self.held.items() if held[1] > now_s + 1e-5}
        for body in self.dead_lettered():
            if body in self.present[body[0]]:
                self.present[body[0]].remove(body)
            self.held.pop(body, None)

    def dead_lettered(self) -> set[str]:
        if self._dead is None:
            return set()
        return {record.body for record in self._dead.state.records.values()}

    def count(self) -> int:
        return sum(map(len, self.present.values()))

    def judge(self, received: Iterable[Received], until_s: float, *, is_fifo: bool) -> None:
        """Every earlier message of a group has left it, or comes before in the same batch."""
        batch: list[str] = []
        for each in received:
            body, line = each.body, self.present[each.body[0]]
            assert body in line, f"{body} was deleted or dead-lettered"
            assert body not in self.held, f"{body} is in flight"
            if is_fifo:
                earlier = line[: line.index(body)]
                assert all(other in batch for other in earlier), f"{earlier} before {body}"
            batch.append(body)
            self.held[body] = (each, until_s)


class Chaos:
    """One queue, used at random."""

    def __init__(self, shop: Shop, witness: Witness, chance: random.Random) -> None:
        self.shop, self.witness, self.chance = shop, witness, chance
        self._sent = 0

    async def send(self) -> None:
        group = self.chance.choice(GROUPS)
        self._sent += 1
        body = f"{group}{self._sent}"
        if self.shop.queue.state.is_fifo:
            await self.shop.send_fifo(body, group=group)
        else:
            await self.shop.send(body, group=group)
        self.witness.present[group].append(body)

    async def receive(self) -> None:
        visibility_s = self.chance.choice([0, 1, 2, 5, 30])
        max_count = self.chance.choice([1, 2, 5, 10])
        received = await self.shop.receive(max_count, visibility_s=visibility_s)
        now_s = self.shop.clock.now_s()
        self.witness.look(now_s)
        is_fifo = self.shop.queue.state.is_fifo
        self.witness.judge(received, now_s + visibility_s, is_fifo=is_fifo)
        self.witness.look(now_s)

    async def delete(self) -> None:
        if self.witness.held:
            body = self.chance.choice(list(self.witness.held))
            [problem] = await self.shop.delete(self.witness.held[body][0])
            assert problem is None
            del self.witness.held[body]
            self.witness.present[body[0]].remove(body)

    async def change(self) -> None:
        if self.witness.held:
            body = self.chance.choice(list(self.witness.held))
            visibility_s = self.chance.choice([0, 3, 20])
            received = self.witness.held[body][0]
            assert await self.shop.change(received, visibility_s) is None
            self.witness.held[body] = (received, self.shop.clock.now_s() + visibility_s)

    async def wait(self) -> None:
        await self.shop.clock.advance(self.chance.choice([0.5, 1, 3, 31]))


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("disk", ["a good disk", "a bad disk"])
@pytest.mark.parametrize("limit", [None, 3], ids=["no redrive", "redrive"])
@pytest.mark.parametrize("name", ["line.fifo", "queue"])
async def test_when_a_queue_is_used_at_random_then_order_holds_and_nothing_is_lost(
    name: str, limit: int | None, disk: str, seed: int
) -> None:
    """R44, R45: per group no message passes another, none is in two hands, none vanishes."""
    clock, store, chance = VirtualClock(), PatientStore(), random.Random(seed)
    shop = await Shop.open(clock, store)
    dead_name = name.replace("line", "dead").replace("queue", "dead")
    dead = await shop.make(dead_name) if limit else None
    await shop.make(name, redrive=redrive(dead_name, limit) if limit else None)
    witness = Witness(dead)
    chaos = Chaos(shop, witness, chance)
    acts = [chaos.send, chaos.receive, chaos.delete, chaos.change, chaos.wait]
    is_full = False
    store.refuses = lambda entry: is_full

    for _ in range(STEPS):
        is_full = disk == "a bad disk" and chance.random() < 0.2
        witness.look(clock.now_s())
        [act] = chance.choices(acts, weights=[30, 35, 20, 10, 5])
        try:
            await act()
        except StorageFailed:
            assert is_full
        witness.look(clock.now_s())
        assert sum(shop.counts()) == witness.count()

    is_full = False
    await clock.advance(31)
    while any(shop.counts()):
        await chaos.receive()
        while witness.held:
            await chaos.delete()
        await clock.advance(31)
    assert witness.count() == 0
    await shop.engine.aclose()
