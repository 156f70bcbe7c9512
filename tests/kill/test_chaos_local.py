"""Chaos on `local://`: processes are killed and stopped, the host among them, on both event loops.

Half a minute by default; `PUMP_CHAOS_S=300` makes it five.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sqlite3
import sys
from asyncio.subprocess import DEVNULL, Process
from collections import Counter, defaultdict
from contextlib import AsyncExitStack, closing
from itertools import count
from pathlib import Path

import attrs
import pytest

from gateways.local import LocalGateway
from pump.clock import SYSTEM_CLOCK
from pump.ports import QueueStats

ROOT = Path(__file__).parents[2]
CHAOS_S = float(os.environ.get("PUMP_CHAOS_S", "30"))
PATIENCE_S = 150.0
WORKERS = 3


@attrs.frozen(eq=False)
class Child:
    process: Process
    notes: Path

    def is_ready(self) -> bool:
        return self.notes.exists() and self.notes.stat().st_size > 0

    async def kill(self) -> None:
        if self.process.returncode is None:
            self.process.kill()
        await self.process.wait()


class Crowd:
    """Workers and a sender, and what was done to them."""

    def __init__(self, folder: Path, chance: random.Random) -> None:
        self._folder = folder
        self._chance = chance
        self._names = count()
        self.workers: list[Child] = []
        self.sender: Child | None = None
        self._stopped: dict[int, asyncio.Task[None]] = {}
        self.kills = self.pauses = 0

    async def start(self, mode: str, *more: str) -> Child:
        number = next(self._names)
        name = f"{mode}-{number}"
        errors = await asyncio.to_thread((self._folder / f"{name}.err").open, "wb")
        try:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "tests.kill.child_chaos",
                str(self._folder),
                name,
                mode,
                "asyncio" if number % 3 == 2 else "uvloop",
                *more,
                cwd=ROOT,
                stdin=DEVNULL,
                stdout=DEVNULL,
                stderr=errors,
            )
        finally:
            errors.close()
        return Child(process, self._folder / f"{name}.notes")

    async def fill(self) -> None:
        while len(self.workers) < WORKERS:
            self.workers.append(await self.start("work"))
        if self.sender is None:
            said = await asyncio.to_thread(read_notes, self._folder)
            numbers = [int(id_.split("-")[1]) for verb, id_, _ in said if verb == "sending"]
            self.sender = await self.start("send", str(max(numbers, default=0) + 1))

    async def disturb(self) -> None:
        """Kill or stop one of those that have begun to work."""
        ready = [child for child in self.everybody() if await asyncio.to_thread(child.is_ready)]
        if not ready:
            return
        child = self._chance.choice(ready)
        if self._chance.random() < 0.4:
            self.kills += 1
            await child.kill()
            if child is self.sender:
                self.sender = None
            else:
                self.workers.remove(child)
            await self.fill()
        else:
            self.pause(child.process, self._chance.uniform(0.05, 5.0))

    def everybody(self) -> list[Child]:
        return [*self.workers, *([] if self.sender is None else [self.sender])]

    def pause(self, process: Process, pause_s: float) -> None:
        async def wake() -> None:
            await SYSTEM_CLOCK.sleep(pause_s)
            if process.returncode is None:
                process.send_signal(signal.SIGCONT)

        if process.returncode is None and process.pid not in self._stopped:
            self.pauses += 1
            process.send_signal(signal.SIGSTOP)
            task = self._stopped[process.pid] = asyncio.create_task(wake())
            task.add_done_callback(lambda _: self._stopped.pop(process.pid, None))

    async def calm_down(self) -> None:
        """Wake all up, and send no more."""
        if self._stopped:
            await asyncio.wait(self._stopped.values())
        if self.sender is not None:
            await self.sender.kill()

    async def drain(self) -> list[int]:
        for worker in self.workers:
            if worker.process.returncode is None:
                worker.process.send_signal(signal.SIGTERM)
        return [await worker.process.wait() for worker in self.workers]

    async def aclose(self) -> None:
        for child in self.everybody():
            await child.kill()


def read_notes(folder: Path) -> list[tuple[str, str, float]]:
    notes = []
    for path in folder.glob("*.notes"):
        for line in path.read_text().splitlines():
            verb, id_, at_s = line.split()
            notes.append((verb, id_, float(at_s)))
    return notes


def read_effects(folder: Path) -> list[tuple[str, str, int]]:
    with closing(sqlite3.connect(folder / "inbox.db")) as database:
        return list(database.execute("SELECT id, grp, n FROM effects ORDER BY place"))


def read_tracebacks(folder: Path) -> dict[str, str]:
    said = {path.name: path.read_text(errors="replace") for path in folder.glob("*.err")}
    return {name: text for name, text in said.items() if "Traceback" in text}


async def wait_until_empty(folder: Path) -> list[QueueStats]:
    """What is in the queues once nothing is left to do, or at the end of our patience."""
    gateway = LocalGateway(folder / "queues")
    await gateway.open()
    try:
        until_s = SYSTEM_CLOCK.now_s() + PATIENCE_S
        while True:
            stats = list(await gateway.admin().queues())
            steps = next(each for each in stats if each.name == "steps")
            left = steps.visible + steps.in_flight + (steps.delayed or 0)
            if not left or SYSTEM_CLOCK.now_s() > until_s:
                return stats
            await SYSTEM_CLOCK.sleep(0.2)
    finally:
        await gateway.aclose()


@pytest.mark.slow
@pytest.mark.timeout(CHAOS_S + 3 * PATIENCE_S)
async def test_when_processes_are_killed_and_stopped_then_every_step_takes_effect_once_in_order(
    tmp_path: Path,
) -> None:
    """Laws 2, 3 and 7, R5, R10, R67, T3, T4: none lost, no pump broken, no late start, order kept
    in each group, effects once with the inbox.
    """
    chance = random.Random(int(os.environ.get("PUMP_CHAOS_SEED", "7")))
    crowd = Crowd(tmp_path, chance)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(crowd.aclose)
        await crowd.fill()
        while not all(map(Child.is_ready, crowd.everybody())):
            await SYSTEM_CLOCK.sleep(0.1)
        end_s = SYSTEM_CLOCK.now_s() + CHAOS_S
        while SYSTEM_CLOCK.now_s() < end_s:
            await SYSTEM_CLOCK.sleep(chance.uniform(0.2, 1.5))
            await crowd.disturb()
        await crowd.calm_down()
        stats = {each.name: each for each in await wait_until_empty(tmp_path)}
        codes = await crowd.drain()

    notes = await asyncio.to_thread(read_notes, tmp_path)
    effects = await asyncio.to_thread(read_effects, tmp_path)
    said: defaultdict[str, set[str]] = defaultdict(set)
    acked_s: dict[str, float] = {}
    for verb, id_, at_s in notes:
        said[verb].add(id_)
        if verb == "acked":
            acked_s[id_] = min(at_s, acked_s.get(id_, at_s))
    print(
        f"{crowd.kills} kills, {crowd.pauses} pauses, {len(said['sent'])} sent, "
        f"{sum(verb == 'start' for verb, _, _ in notes)} runs begun"
    )

    assert said["failed"] == set(), "a pump broke"
    assert codes == [0] * len(codes)
    assert {name: each.visible for name, each in stats.items() if each.visible} == {}
    done = Counter(id_ for id_, _, _ in effects)
    assert said["sent"] - set(done) == set(), "lost"
    assert [id_ for id_, times in done.items() if times > 1] == [], "took effect twice"
    late = [
        (id_, at_s - acked_s[id_])
        for verb, id_, at_s in notes
        if verb == "start" and at_s > acked_s.get(id_, at_s)
    ]
    assert late == [], "started after it was acked"
    for group in {group for _, group, _ in effects if group.startswith("g")}:
        numbers = [n for _, in_group, n in effects if in_group == group]
        assert numbers == sorted(numbers), f"{group} is out of order"
    assert await asyncio.to_thread(read_tracebacks, tmp_path) == {}
