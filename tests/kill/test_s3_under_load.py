"""`kill -9` of producers and pumps while hundreds of messages pass, on both layouts."""

from __future__ import annotations

import random

import pytest

from .child_s3 import REJECTED, build, number_of
from .s3_processes import Bucket, Child, Company
from .test_s3_many_consumers import make_queues

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

LEASE_S = 5.0
KILLS = 6
COUNT = 350
"""Confirmed sends after which the producers are killed for good."""
IN_HAND = 20
"""Concurrency and prefetch of a pump: what a kill may have repeated."""
RANGE = 10_000
"""Numbers for each producer, so that no two send the same one."""


class Traffic:
    """Producers and pumps of which one is killed, and another started, now and then."""

    def __init__(self, company: Company, chance: random.Random) -> None:
        self.company = company
        self._chance = chance
        self.alive: list[Child] = []

    async def start(self, mode: str) -> None:
        number = RANGE * (1 + len(self.company.children)) if mode == "send" else 0.005
        self.alive.append(await self.company.start(mode, number, lease_s=LEASE_S))

    async def kill_one(self) -> None:
        """After some more work was done: anyone, and one of its kind in its place."""
        enough = self.done_count() + self._chance.randrange(10, 50)
        await self.company.until(lambda: self.done_count() >= enough)
        victim = self._chance.choice([each for each in self.alive if each.said])
        self.alive.remove(victim)
        await self.company.kill(victim)
        await self.start(victim.mode)

    async def kill_producers(self) -> None:
        for child in [each for each in self.alive if each.mode == "send"]:
            self.alive.remove(child)
            await self.company.kill(child)

    def done_count(self) -> int:
        return len(self.finished())

    def finished(self) -> set[int]:
        """Handled, or about to be rejected."""
        rejected = {each for each in self.company.said("start") if each % REJECTED == 0}
        return set(self.company.said("end")) | rejected


@pytest.mark.parametrize("layout", ["leases", "log"])
async def test_when_producers_and_pumps_are_killed_under_load_then_nothing_is_lost(
    bucket: Bucket, layout: str
) -> None:
    """R8, R21, R25, R48, R49, T3, T8: what was confirmed is handled or dead; few twice."""
    seed = random.SystemRandom().randrange(1_000_000)
    url = bucket.url(layout)
    async with build(url, lease_s=LEASE_S) as app, Company(url) as company:
        await make_queues(app)
        traffic = Traffic(company, random.Random(seed))
        for mode in ("send", "send", "pump", "pump", "pump"):
            await traffic.start(mode)

        for _ in range(KILLS):
            await traffic.kill_one()
        await company.until(lambda: len(company.said("sent")) >= COUNT)
        await traffic.kill_producers()
        sent = set(company.said("sent"))
        await company.until(lambda: sent <= traffic.finished())
        # What a killed pump had handled and not acked is in flight until its lease is over, and
        # somebody must be there to handle it again.
        while (stats := await app.admin.stats("jobs")).visible or stats.in_flight:
            await app.clock.sleep(0.2)
        await company.terminate(*traffic.alive)
        stats = await app.admin.stats("jobs")
        dead = [number_of(each) for each in await app.admin.peek("dead", max_count=10_000)]

    assert (stats.visible, stats.in_flight) == (0, 0), f"with seed {seed}"
    assert sent - traffic.finished() == set(), f"lost, with seed {seed}"
    assert set(dead) == {each for each in company.said("start") if each % REJECTED == 0}
    assert {each for each in sent if each % REJECTED == 0} <= set(dead), f"with seed {seed}"
    again = sum(company.said("end").values()) - len(company.said("end"))
    assert again <= KILLS * IN_HAND, f"with seed {seed}"
    attempts: dict[int, list[int]] = {}
    for line in company.lines("end"):
        attempts.setdefault(line.number, []).append(line.attempt)
    # Handled again only because it was delivered again: the queue counted each time.
    assert all(len(each) == len(set(each)) for each in attempts.values()), f"with seed {seed}"
