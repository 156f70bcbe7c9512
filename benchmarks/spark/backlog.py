"""Backlog: a `pump local` server with messages waiting, and the moment they are all gone."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from ..reading import Reading, Span
from ..servers.calls import Calls
from ..servers.running import pump_local
from ..servers.target import ask, pending_in
from ..sqs_rig import aws_environment
from .app import QUEUE, WORK, make_app

_LOOK_S = 0.02
_PATIENCE_S = 600.0
_POST_BATCH = 100
_SENDERS = 4


class Backlog:
    """One queue of one server, which is filled before the clock starts."""

    def __init__(self, endpoint: str, work: str) -> None:
        self.endpoint = endpoint
        self.work = work
        found = ask(Calls(endpoint), "CreateQueue", QueueName=QUEUE)
        self._calls = Calls(endpoint, found["QueueUrl"])

    def fill(self, count: int) -> None:
        """Send so many, as another program would."""
        asyncio.run(self._send(count))

    def wait_for(self, pending: Callable[[int], bool], check: Callable[[], None]) -> int:
        """Return how many are left once `pending` says yes to it; `check` raises when nobody
        will delete any.
        """
        deadline_s = time.monotonic() + _PATIENCE_S
        while not pending(left := pending_in(self._calls)):
            check()
            assert time.monotonic() < deadline_s, "nobody deletes messages"
            time.sleep(_LOOK_S)
        return left

    def timed(
        self, count: int, new_clock: Callable[[], Clock], check: Callable[[], None]
    ) -> Reading:
        """From the first delete to the last: to start is not what is compared."""
        left = self.wait_for(lambda pending: pending < count, check)
        clock = new_clock()
        self.wait_for(lambda pending: not pending, check)
        return clock.reading(left)

    async def _send(self, count: int) -> None:
        request, _ = WORK[self.work]
        app = make_app(self.endpoint, self.work)
        starts = iter(range(0, count, _POST_BATCH))

        async def send() -> None:
            for start in starts:
                numbers = range(start, min(start + _POST_BATCH, count))
                await app.post_all([request(number) for number in numbers])

        async with app, asyncio.TaskGroup() as group:
            for _ in range(_SENDERS):
                group.create_task(send())


@contextmanager
def backlog(work: str) -> Iterator[Backlog]:
    """A fresh server with an empty queue; meanwhile SDKs find credentials."""
    with aws_environment(), pump_local(Path("data")) as server:
        yield Backlog(server.endpoint, work)


class Clock:
    """Wall clock and processor time of some processes with all their children.

    `less` is processor time that is no work of theirs, such as that of the thread that measures.
    """

    def __init__(
        self, processes: Callable[[], list[psutil.Process]], less: Callable[[], float] = lambda: 0.0
    ) -> None:
        self._processes = processes
        self._less = less
        self._wall_s, self._cpu_s = time.perf_counter(), self._spent_s()

    def reading(self, messages: int) -> Reading:
        """What passed since this clock was made."""
        span = Span(wall_s=time.perf_counter() - self._wall_s, cpu_s=self._spent_s() - self._cpu_s)
        return Reading(messages=messages, spans={"consume": span})

    def _spent_s(self) -> float:
        spent_s = sum(sum(each.cpu_times()[:4]) for each in self._processes())
        return float(spent_s) - self._less()
