"""Chaos on `sqs://`: `pump local` is killed again and again, and workers are, on both event loops.

Half a minute by default; `PUMP_CHAOS_S=300` makes it five.
"""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections import Counter, defaultdict
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import BotoCoreError, ClientError

from .child_chaos_sqs import QUEUE
from .sqs_server_process import ServerProcess

ROOT = Path(__file__).parents[2]
CHAOS_S = float(os.environ.get("PUMP_CHAOS_S", "30"))
PATIENCE_S = 180.0
WORKERS, GROUPS = 3, 8


class Sender(threading.Thread):
    """Sends steps of all groups in order, each until it is answered."""

    def __init__(self, server: ServerProcess) -> None:
        super().__init__(name="sender")
        self._client = server.client()
        self.is_over = threading.Event()
        self.sent: dict[str, tuple[str, int]] = {}
        """By message id: group and number."""

    def run(self) -> None:
        for n in count():
            for group in (f"g{number}" for number in range(GROUPS)):
                while not self.is_over.is_set() and not self._send(group, n):
                    self.is_over.wait(0.05)
            if self.is_over.is_set():
                return
            self.is_over.wait(0.1)

    def _send(self, group: str, n: int) -> bool:
        try:
            answer = self._client.send_message(
                QueueUrl=QUEUE,
                MessageBody=f'{{"group": "{group}", "n": {n}}}',
                MessageGroupId=group,
                MessageDeduplicationId=f"{group}-{n}",
                MessageAttributes={"messageType": {"DataType": "String", "StringValue": "Step"}},
            )
        except (BotoCoreError, ClientError):
            return False
        self.sent[answer["MessageId"]] = (group, n)
        return True


class Crowd:
    """Workers, and what was done to them and to the server."""

    def __init__(self, server: ServerProcess, folder: Path, chance: random.Random) -> None:
        self._server = server
        self._folder = folder
        self._chance = chance
        self._names = count()
        self.workers: list[subprocess.Popen[bytes]] = []
        self.kills: Counter[str] = Counter()

    def fill(self) -> None:
        while len(self.workers) < WORKERS:
            number = next(self._names)
            name, loop = f"worker-{number}", "asyncio" if number % 3 == 2 else "uvloop"
            url = f"sqs://us-east-1?endpoint={self._server.endpoint_url}&transport=lean"
            command = [sys.executable, "-m", "tests.kill.child_chaos_sqs", url]
            keys = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}
            with (self._folder / f"{name}.err").open("wb") as errors:
                self.workers.append(
                    subprocess.Popen(
                        [*command, str(self._folder), name, loop],
                        cwd=ROOT,
                        env={**os.environ, **keys},
                        stderr=errors,
                    )
                )

    def disturb(self) -> None:
        if self._chance.random() < 0.75:
            self.kills["server"] += 1
            self._server.kill()
            threading.Event().wait(self._chance.uniform(0.0, 1.5))
            self._server.start()
        else:
            self.kills["worker"] += 1
            worker = self.workers.pop(self._chance.randrange(len(self.workers)))
            worker.kill()
            worker.wait()
            self.fill()

    def drain(self) -> list[int]:
        for worker in self.workers:
            worker.send_signal(signal.SIGTERM)
        return [worker.wait(60) for worker in self.workers]

    def end(self) -> None:
        for worker in self.workers:
            worker.kill()
            worker.wait()


def left_in(client: Any, queue: str) -> int:
    attributes = client.get_queue_attributes(QueueUrl=queue, AttributeNames=["All"])
    names = ("", "NotVisible", "Delayed")
    return sum(
        int(attributes["Attributes"][f"ApproximateNumberOfMessages{name}"]) for name in names
    )


def read_notes(folder: Path) -> list[tuple[str, str, float]]:
    lines = [line for path in folder.glob("*.notes") for line in path.read_text().splitlines()]
    return [(verb, what, float(at_s)) for verb, what, at_s in map(str.split, lines)]


def read_effects(folder: Path) -> list[tuple[str, str, int]]:
    with closing(sqlite3.connect(folder / "inbox.db")) as database:
        return list(database.execute("SELECT id, grp, n FROM effects ORDER BY place"))


@pytest.mark.slow
@pytest.mark.timeout(CHAOS_S + 2 * PATIENCE_S)
def test_when_pump_local_is_killed_again_and_again_then_every_step_takes_effect_once_in_order(
    tmp_path: Path,
) -> None:
    """Laws 2, 3 and 7, R45, R67, T3, T4, T14: none lost, no pump broken, no late start, order kept
    in each group, effects once with the inbox.
    """
    seed = int(os.environ.get("PUMP_CHAOS_SEED", "7"))
    chance = random.Random(seed)
    arguments = ["--queue", QUEUE, "--queue", "dead.fifo"]
    with ServerProcess(tmp_path / "data", *arguments) as server:
        crowd, sender = Crowd(server, tmp_path, chance), Sender(server)
        try:
            crowd.fill()
            sender.start()
            until_s = time.monotonic() + CHAOS_S
            while time.monotonic() < until_s:
                threading.Event().wait(chance.uniform(1.0, 4.0))
                crowd.disturb()
            sender.is_over.set()
            sender.join()
            client = server.client()
            until_s = time.monotonic() + PATIENCE_S
            while left_in(client, QUEUE) and time.monotonic() < until_s:
                threading.Event().wait(0.2)
            left = {queue: left_in(client, queue) for queue in (QUEUE, "dead.fifo")}
            codes = crowd.drain()
        finally:
            sender.is_over.set()
            crowd.end()

    notes, effects = read_notes(tmp_path), read_effects(tmp_path)
    said: defaultdict[str, set[str]] = defaultdict(set)
    acked_s: dict[str, float] = {}
    for verb, what, at_s in notes:
        said[verb].add(what)
        if verb == "acked":
            acked_s[what] = min(at_s, acked_s.get(what, at_s))
    runs = sum(verb == "start" for verb, _, _ in notes)
    print(f"{dict(crowd.kills)} killed, {len(sender.sent)} sent, {runs} runs begun")

    assert left == {QUEUE: 0, "dead.fifo": 0}
    assert said["failed"] == set(), "a pump broke"
    assert codes == [0] * WORKERS
    done = Counter((group, n) for _, group, n in effects)
    assert set(sender.sent.values()) - set(done) == set(), "lost"
    assert [step for step, times in done.items() if times > 1] == [], "took effect twice"
    late = [
        (what, at_s - acked_s[what])
        for verb, what, at_s in notes
        if verb == "start" and at_s > acked_s.get(what, at_s)
    ]
    assert late == [], "started after it was acked"
    for group in {group for _, group, _ in effects}:
        numbers = [n for _, in_group, n in effects if in_group == group]
        assert numbers == sorted(numbers), f"{group} is out of order"
    tracebacks = [p.name for p in tmp_path.glob("*.err") if "Traceback" in p.read_text()]
    assert tracebacks == []
