"""What survives `kill -9`, and what SIGTERM leaves behind."""

from __future__ import annotations

import random
import signal
from collections import Counter
from pathlib import Path

import pytest

from .child_process import Child, Line
from .child_pump import Job, build

pytestmark = pytest.mark.slow
IN_HAND = 20


async def send_jobs(folder: Path, count: int) -> None:
    async with build(folder) as app:
        for start in range(0, count, 500):
            await app.post_all([Job(number) for number in range(start, start + 500)])


async def depth(folder: Path) -> tuple[int, int]:
    """Visible and in flight, as another process sees it."""
    async with build(folder) as app:
        [jobs] = [each for each in await app.admin.queues() if each.name == "jobs"]
    return jobs.visible, jobs.in_flight


async def test_when_the_pump_is_killed_ten_times_then_nothing_is_lost(tmp_path: Path) -> None:
    """R8, R44, R45, T3, T4: 10,000 messages; only what was in flight is handled twice."""
    count, kills = 10_000, 10
    seed = random.SystemRandom().randrange(1_000_000)
    chance = random.Random(seed)
    await send_jobs(tmp_path, count)

    runs: list[list[Line]] = []
    for _ in range(kills):
        with Child(tmp_path) as child:
            after = chance.randrange(1, 1_400)
            lines = child.lines()
            seen = [next(lines) for _ in range(after)]
            child.process.kill()
            seen.extend(lines)
            runs.append(seen)
    with Child(tmp_path) as child:
        last: list[Line] = []
        done = {line.number for run in runs for line in run if line.word == "end"}
        for line in child.lines():
            last.append(line)
            if line.word == "end":
                done.add(line.number)
            if len(done) == count:
                child.process.send_signal(signal.SIGTERM)
        exit_code = child.process.wait()
        runs.append(last)

    assert exit_code == 0
    ended = [{line.number for line in run if line.word == "end"} for run in runs]
    assert set().union(*ended) == set(range(count)), f"lost, with seed {seed}"
    assert await depth(tmp_path) == (0, 0)
    for position, of_this_run in enumerate(ended[:-1]):
        again = of_this_run & set().union(*ended[position + 1 :])
        assert len(again) <= IN_HAND, f"run {position} with seed {seed}"
    attempts: dict[int, list[int]] = {}
    for line in (line for run in runs for line in run if line.word == "end"):
        attempts.setdefault(line.number, []).append(line.attempt)
    # Handled again only because it was delivered again: the broker counted each time.
    assert all(each == sorted(set(each)) for each in attempts.values()), f"seed {seed}"


async def test_when_terminated_under_load_then_started_work_ends_and_the_rest_is_visible(
    tmp_path: Path,
) -> None:
    """Law 5, R45: exit code 0, every started message finished, every other one available."""
    count = 500
    await send_jobs(tmp_path, count)

    with Child(tmp_path, pause_ms=30) as child:
        lines = child.lines()
        seen = [next(lines) for _ in range(100)]
        child.process.send_signal(signal.SIGTERM)
        seen.extend(lines)
        exit_code = child.process.wait()

    started = Counter(line.number for line in seen if line.word == "start")
    ended = Counter(line.number for line in seen if line.word == "end")
    assert exit_code == 0
    assert started == ended
    assert set(started.values()) == {1}
    assert 0 < len(ended) < count
    assert await depth(tmp_path) == (count - len(ended), 0)
