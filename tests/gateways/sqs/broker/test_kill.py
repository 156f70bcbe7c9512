"""What survives `kill -9` on SQS, and what SIGTERM leaves behind."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlencode

import attrs
import pytest

from gateways.sqs import TransportKind
from tests.kill.child_process import Line

from .bench import Bench
from .child_sqs import REJECTED_EVERY, Job, build

pytestmark = [pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(600)]
ROOT = Path(__file__).resolve().parents[4]
LEASE_S = 4.0
"""A killed process hides what it had in hand for so long."""


@attrs.frozen
class Child:
    """A running `child_sqs`."""

    process: subprocess.Popen[str]

    def lines(self) -> Iterator[Line]:
        """What it does, as it does it; ends with the process, after all it had written."""
        assert self.process.stdout is not None
        for text in self.process.stdout:
            yield Line.parse(text)


@attrs.frozen
class Yard:
    """Where children are started: all on one queue, through one SDK."""

    bench: Bench
    folder: Path
    suffix: str

    @property
    def url(self) -> str:
        aws = self.bench.aws
        query = {"transport": self.bench.transport.value, "endpoint": aws.endpoint_url}
        return f"sqs://{aws.region}?{urlencode(query)}"

    @property
    def queue(self) -> str:
        return f"jobs{self.suffix}"

    @property
    def dead(self) -> str:
        return f"dead{self.suffix}"

    @contextmanager
    def child(self, *, pause_ms: int = 0, mode: str = "work") -> Iterator[Child]:
        """Start a child; it is killed at the end of the block if it still runs."""
        program = [sys.executable, "-m", "tests.gateways.sqs.broker.child_sqs"]
        arguments = [self.url, self.queue, self.dead, str(LEASE_S), str(pause_ms), mode]
        process = subprocess.Popen(
            [*program, *arguments],
            stdout=subprocess.PIPE,
            text=True,
            cwd=self.folder,
            env={**os.environ, **self.credentials, "PYTHONPATH": str(ROOT)},
        )
        try:
            yield Child(process)
        finally:
            process.kill()
            assert process.stdout is not None
            process.stdout.close()
            process.wait()

    @property
    def credentials(self) -> Mapping[str, str]:
        aws = self.bench.aws
        return {
            "AWS_ACCESS_KEY_ID": aws.access_key_id,
            "AWS_SECRET_ACCESS_KEY": aws.secret_access_key,
        }

    async def send(self, numbers: Sequence[int]) -> None:
        """Send jobs, with the very app that the children run."""
        async with build(self.url, self.queue, self.dead, LEASE_S, self.folder) as app:
            for start in range(0, len(numbers), 100):
                jobs = [Job(number) for number in numbers[start : start + 100]]
                await app.post_all(jobs, group=f"g-{start}")

    async def dead_numbers(self) -> Counter[int]:
        found = await self.bench.plain.take_all(self.dead)
        return Counter(int(raw["Body"].split(":")[1].rstrip("}")) for raw in found)


@pytest.fixture
def yard(bench: Bench, suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Yard:
    made = Yard(bench, tmp_path, suffix)
    for name, value in made.credentials.items():
        monkeypatch.setenv(name, value)
    return made


def numbers(lines: Sequence[Line], word: str) -> set[int]:
    return {line.number for line in lines if line.word == word}


@pytest.mark.parametrize(
    ("transport", "suffix"),
    [(TransportKind.AIOBOTO3, ""), (TransportKind.BOTO3, ".fifo"), (TransportKind.LEAN, "")],
    ids=["aioboto3-standard", "boto3-fifo", "lean-standard"],
)
async def test_when_the_process_is_killed_again_and_again_then_nothing_is_lost(yard: Yard) -> None:
    """R8, R25, T10, law 2: at random moments, while messages flow."""
    count, kills = 1_500, 5
    seed = random.SystemRandom().randrange(1_000_000)
    chance = random.Random(seed)
    await yard.send(range(count))
    to_reject = set(range(0, count, REJECTED_EVERY))

    seen: list[Line] = []
    for _ in range(kills):
        with yard.child() as child:
            lines = child.lines()
            seen += [next(lines) for _ in range(chance.randrange(1, 400))]
            child.process.kill()
            seen += lines
    with yard.child(mode="empty") as child:
        seen += child.lines()
        exit_code = child.process.wait()

    dead = await yard.dead_numbers()
    assert exit_code == 0
    assert numbers(seen, "end") == set(range(count)) - to_reject, f"lost, with seed {seed}"
    assert set(dead) == to_reject, f"seed {seed}"
    assert await yard.bench.plain.depth(yard.queue) == (0, 0, 0)
    if yard.suffix:
        assert set(dead.values()) == {1}, "T10"


async def test_when_it_dies_between_the_routed_copy_and_the_delete_then_fifo_keeps_one_copy(
    yard: Yard,
) -> None:
    """T10, law 2: rejected again after the restart. A standard queue may have two."""
    await yard.send([0])

    with yard.child(mode="die") as child:
        first, exit_code = list(child.lines()), child.process.wait()
    with yard.child(mode="empty") as child:
        second = list(child.lines())
        last_exit_code = child.process.wait()

    assert (exit_code, last_exit_code) == (-signal.SIGKILL, 0)
    assert ([line.attempt for line in first], [line.attempt for line in second]) == ([1], [2])
    found = await yard.dead_numbers()
    assert found == ({0: 1} if yard.suffix else {0: 2})


async def test_when_terminated_under_load_then_started_work_ends_and_the_rest_is_visible(
    yard: Yard,
) -> None:
    """Law 5: exit code 0, every started job finished, every other one there for others."""
    count = 300
    await yard.send(range(count))

    with yard.child(pause_ms=50) as child:
        lines = child.lines()
        seen = [next(lines) for _ in range(60)]
        child.process.send_signal(signal.SIGTERM)
        seen += lines
        exit_code = child.process.wait()

    started = Counter(line.number for line in seen if line.word == "start")
    rejected = {number for number in started if number % REJECTED_EVERY == 0}
    assert exit_code == 0
    assert set(started.values()) == {1}
    assert numbers(seen, "end") == set(started) - rejected
    assert 0 < len(started) < count
    assert set(await yard.dead_numbers()) == rejected
    # Nothing is in flight: what was not started is not hidden until its lease ends.
    assert await yard.bench.plain.depth(yard.queue) == (count - len(started), 0, 0)
