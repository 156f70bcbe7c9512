"""What becomes of a rejected message when the process dies on the way."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest

from pump.clock import SystemClock
from pump.dispatcher import Sweeper, Swept
from pump.stores.spill import SqliteSpill
from pump.subscription import MakeChannels, QueueSpec

from .child_process import Child
from .child_pump import MISSING, Job, build

pytestmark = pytest.mark.slow


class AnHourLater(SystemClock):
    """When the claims of sweepers that died with their process are over."""

    def time_s(self) -> float:
        return super().time_s() + 3600


async def send_jobs(folder: Path, count: int) -> None:
    async with build(folder) as app:
        await app.post_all([Job(number) for number in range(count)])


async def bodies_in(folder: Path, queue: str) -> Counter[bytes]:
    """What is in a queue, once nothing of the jobs is left."""
    async with build(folder) as app:
        [jobs] = [each for each in await app.admin.queues() if each.name == "jobs"]
        assert (jobs.visible, jobs.in_flight) == (0, 0)
        return Counter(message.body for message in await app.admin.peek(queue, max_count=10**6))


def run(folder: Path, mode: str) -> tuple[list[int], int]:
    """The attempts its handler saw, and its exit code."""
    with Child(folder, mode=mode) as child:
        return [line.attempt for line in child.lines()], child.process.wait()


async def test_when_it_dies_between_the_routed_copy_and_the_ack_then_one_copy_remains(
    tmp_path: Path,
) -> None:
    """T10, law 2: rejected again after the restart, and de-duplicated."""
    await send_jobs(tmp_path, 1)

    first = run(tmp_path, "reject-and-die")
    second = run(tmp_path, "reject")

    assert (first, second) == (([1], -9), ([2], 0))
    assert await bodies_in(tmp_path, "dead") == {b'{"number":0}': 1}


async def test_when_it_dies_between_the_spill_and_the_ack_then_one_copy_arrives_in_the_end(
    tmp_path: Path,
) -> None:
    """T1, T10, law 2: spilled twice, under one de-duplication id."""
    await send_jobs(tmp_path, 1)

    first = run(tmp_path, "spill-and-die")
    second = run(tmp_path, "spill")
    spill = SqliteSpill(tmp_path / "spill.db")
    spilled = await spill.all()
    async with build(tmp_path) as app:
        await app.admin.ensure(QueueSpec(name=MISSING), MakeChannels.CREATE)
        swept = await Sweeper(spill, app.gateway, AnHourLater()).sweep()

    assert (first, second) == (([1], -9), ([2], 0))
    assert len({each.message.deduplication_id for each in spilled}) == 1
    assert len(spilled) == 2
    assert swept == Swept(sent=2)
    assert not await spill.all()
    assert await bodies_in(tmp_path, MISSING) == {b'{"number":0}': 1}


async def test_when_killed_at_random_while_rejecting_then_each_has_one_copy(
    tmp_path: Path,
) -> None:
    """R25, R27, T10: none lost, none doubled, in the dead-letter queue."""
    count, kills = 2_000, 6
    seed = random.SystemRandom().randrange(1_000_000)
    chance = random.Random(seed)
    await send_jobs(tmp_path, count)

    for _ in range(kills):
        with Child(tmp_path, mode="reject") as child:
            lines = child.lines()
            for _ in range(chance.randrange(1, 300)):
                next(lines)
    _, exit_code = run(tmp_path, "reject")

    dead = await bodies_in(tmp_path, "dead")
    assert exit_code == 0
    assert dead == {b'{"number":%d}' % number: 1 for number in range(count)}, f"seed {seed}"
