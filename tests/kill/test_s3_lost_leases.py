"""Owners that die or freeze: who may take over, and what the old owner may still do."""

from __future__ import annotations

import signal
from collections.abc import Sequence

import pytest

from pump import App
from pump.message import Message

from .child_s3 import DEADLY, MAX_RECEIVE_COUNT, build, job, number_of
from .s3_processes import Bucket, Company
from .test_s3_many_consumers import make_queues

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]
layouts = pytest.mark.parametrize("layout", ["leases", "log"])

LEASE_S = 4.0
"""Of those who lose it: enough for two more processes to be there in time."""


@layouts
async def test_when_an_owner_was_killed_then_of_two_reclaimers_one_gets_each_message(
    bucket: Bucket, layout: str
) -> None:
    """R12, R48, T8: both wait for the same leases to end; none is won twice, none is lost."""
    url, count = bucket.url(layout), 20
    async with build(url) as app, Company(url) as company:
        await make_queues(app)
        await app.gateway.producer("jobs").send([job(number) for number in range(count)])
        owner = await company.start("hold", count, lease_s=LEASE_S)
        await company.until(lambda: len(owner.numbers("got")) == count)

        await company.kill(owner)
        reclaimers = [await company.start("ask", 10) for _ in range(2)]
        await company.until(lambda: len(company.said("confirmed")) == count)
        await company.dismiss(*reclaimers)
        stats = await app.admin.stats("jobs")

    taken_over = [line for child in reclaimers for line in child.said if line.word == "got"]
    assert sorted(line.number for line in taken_over) == list(range(count))
    assert {line.attempt for line in taken_over} == {2}
    assert company.said("confirmed") == dict.fromkeys(range(count), 1)
    assert company.said("refused") == {}
    assert (stats.visible, stats.in_flight) == (0, 0)


@layouts
async def test_when_a_zombie_comes_back_then_it_can_neither_ack_nor_renew_nor_requeue(
    bucket: Bucket, layout: str
) -> None:
    """R14, R16, R48, T8: stopped past its lease, another owner, resumed: every word is refused."""
    url = bucket.url(layout)
    words = ["ack", "extend", "defer", "abandon"]
    async with build(url) as app, Company(url) as company:
        await make_queues(app)
        await app.gateway.producer("jobs").send([job(number) for number, _ in enumerate(words)])
        zombie = await company.start("hold", len(words), lease_s=LEASE_S)
        await company.until(lambda: len(zombie.numbers("got")) == len(words))

        # Nobody else knows that it stands still: only its lease ends.
        zombie.signal(signal.SIGSTOP)
        owner = await company.start("hold", len(words))
        await company.until(lambda: len(owner.numbers("got")) == len(words))
        zombie.signal(signal.SIGCONT)
        for number, word in enumerate(words):
            zombie.tell(f"{word} {number}")
        await company.until(lambda: len(zombie.said) == 1 + 2 * len(words))

        for word in ("extend", "ack"):
            for number, _ in enumerate(words):
                owner.tell(f"{word} {number}")
        await company.until(lambda: len(owner.said) == 1 + 3 * len(words))
        await company.dismiss(zombie, owner)
        stats = await app.admin.stats("jobs")

    assert zombie.numbers("refused") == [0, 1, 2, 3]
    assert {line.attempt for line in owner.said if line.word == "got"} == {2}
    assert owner.numbers("confirmed") == [0, 1, 2, 3, 0, 1, 2, 3]
    assert (stats.visible, stats.in_flight) == (0, 0)


@layouts
async def test_when_a_pump_stands_still_past_its_leases_then_each_message_is_handled_once_more(
    bucket: Bucket, layout: str
) -> None:
    """Law 3, R48, T8: by its new owner; the old one finds its leases gone and acks nothing."""
    url, count = bucket.url(layout), 5
    async with build(url, lease_s=LEASE_S) as app, Company(url) as company:
        await make_queues(app)
        numbers = range(1, 1 + count)
        await app.gateway.producer("jobs").send([job(number) for number in numbers])
        # Its handlers end only by being cancelled: stopped late, it must not have acked any.
        zombie = await company.start("pump", 60, lease_s=LEASE_S)
        await company.until(lambda: len(zombie.numbers("start")) == count)

        zombie.signal(signal.SIGSTOP)
        owner = await company.start("pump", 2, lease_s=LEASE_S)
        await company.until(lambda: len(owner.numbers("start")) == count)
        zombie.signal(signal.SIGCONT)
        await company.until(lambda: len(owner.numbers("end")) == count)
        await company.terminate(zombie, owner)
        stats = await app.admin.stats("jobs")

    assert company.said("start") == dict.fromkeys(numbers, 2)
    assert {line.attempt for line in owner.said} == {2}
    assert (stats.visible, stats.in_flight) == (0, 0)


@layouts
async def test_when_a_message_kills_every_process_then_it_is_dead_lettered_in_the_end(
    bucket: Bucket, layout: str
) -> None:
    """R20, R21: no handler and no pump is left to say so; the count of deliveries is."""
    # A delivery that takes as long as its lease, on a busy machine, would use up an attempt.
    url, lease_s = bucket.url(layout), LEASE_S
    async with build(url, max_receive_count=MAX_RECEIVE_COUNT) as app, Company(url) as company:
        await make_queues(app)
        await app.gateway.producer("jobs").send([job(DEADLY)])

        for deaths in range(1, 1 + MAX_RECEIVE_COUNT):
            victim = await company.start("poison", 0, lease_s=lease_s)
            await company.death_of(victim)
            assert len(company.lines("start")) == deaths
        survivor = await company.start("poison", 0, lease_s=lease_s)
        dead = await dead_lettered(app)
        await company.terminate(survivor)
        stats = await app.admin.stats("jobs")

    assert [line.attempt for line in company.lines("start")] == [1, 2, 3]
    [letter] = dead
    assert number_of(letter) == DEADLY
    assert letter.headers["rejectionReason"] == "DeliveryError"
    assert (stats.visible, stats.in_flight) == (0, 0)


async def dead_lettered(app: App) -> Sequence[Message]:
    """The dead letters once there are some and their originals are gone: the copy comes first, and
    a process that is stopped in between leaves the original to the next.
    """
    while True:
        dead = await app.admin.peek("dead")
        stats = await app.admin.stats("jobs")
        if dead and not (stats.visible or stats.in_flight):
            return dead
        await app.clock.sleep(0.2)
