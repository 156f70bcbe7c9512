"""The pump on Spark, and ordinary pump processes to compare it with: the same app on `pump local`.

As a program it is one ordinary pump: it opens its app, says so, and pumps from a line on:

    python -m benchmarks.contenders.spark_pump ENDPOINT tick LEDGER
"""

from __future__ import annotations

import asyncio
import hashlib
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import psutil

from pump import App, Command, Subscription
from pump.event_loop import run as run_loop
from pump.stores.ledger import ParquetLedger
from pump.stores.spill import MemorySpill

from ..reading import CpuClock, Reading
from ..servers.client import Requests, ask, pending_in
from ..servers.running import pump_local
from .sqs_rig import QUEUE, REGION, aws_environment

HASHES = 10_000
"""About 5 ms. Hashing so little at a time never lets go of the interpreter's lock, so one process
can keep one core busy, and no more.
"""
_LEDGER, _WARM_UP_LEDGER = Path("ledger"), Path("warm-up")
_WARM_UP = 100
"""Messages a core that go through first: a cluster's Python workers are there already, too."""
_POST_BATCH = 100
_SENDERS = 4
_LOOK_S = 0.02
_PATIENCE_S = 600.0
_END_WITHIN_S = 60.0


# The app, in a process of its own or in Spark tasks.


class Tick(Command):
    """What is handled at once."""

    number: int


class Toil(Command):
    """What takes the processor some milliseconds."""

    number: int


async def tick(request: Tick) -> None:
    pass


def toil(request: Toil) -> None:
    digest = str(request.number).encode()
    for _ in range(HASHES):
        digest = hashlib.sha256(digest).digest()


WORK: dict[str, tuple[type[Tick | Toil], object]] = {"tick": (Tick, tick), "toil": (Toil, toil)}


def make_app(endpoint: str, work: str, ledger: Path | None = None) -> App:
    """One subscription with its defaults, but for the wait: the end shall not take long."""
    request, handler = WORK[work]
    kept = None if ledger is None else ParquetLedger(ledger)
    # A benchmark leaves no data folder behind.
    app = App(f"sqs://{REGION}?endpoint={endpoint}", spill=MemorySpill(), ledger=kept)
    app.register(request, handler)  # type: ignore[arg-type]
    app.subscribe(
        Subscription(
            queue=QUEUE,
            request=request,
            dead_letter_queue=f"{QUEUE}-dead",
            wait=timedelta(seconds=1),
        )
    )
    return app


# Messages waiting on a `pump local` server, and the moment when they are all gone.


class Backlog:
    """One queue of one server, which is filled before the clock starts."""

    def __init__(self, endpoint: str, work: str) -> None:
        self.endpoint = endpoint
        self.work = work
        found = ask(Requests(endpoint), "CreateQueue", QueueName=QUEUE)
        self._requests = Requests(endpoint, found["QueueUrl"])

    def fill(self, count: int) -> None:
        """Send so many, as another program would."""
        asyncio.run(self._send(count))

    def wait_for(self, pending: Callable[[int], bool], check: Callable[[], None]) -> int:
        """Return how many are left once `pending` says yes to it; `check` raises when none
        will be deleted any more.
        """
        deadline_s = time.monotonic() + _PATIENCE_S
        while not pending(left := pending_in(self._requests)):
            check()
            assert time.monotonic() < deadline_s, "no messages are deleted"
            time.sleep(_LOOK_S)
        return left

    def timed(
        self, count: int, new_clock: Callable[[], CpuClock], check: Callable[[], None]
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


def count_processed(ledger: Path) -> int:
    """How many messages a ledger says were processed."""
    import pyarrow.compute as pc
    import pyarrow.dataset

    rows: Any = pyarrow.dataset.dataset(ledger, partitioning="hive").to_table(
        columns=["message_id"], filter=pc.field("status") == "processed"
    )
    return len(pc.unique(rows["message_id"]))


# Ordinary pumps side by side.


def run_processes(count: int, *, work: str, processes: int) -> Reading:
    """From the first delete to the last."""
    with backlog(work) as waiting, ExitStack() as stack:
        waiting.fill(count)
        pumps = [stack.enter_context(_started(waiting)) for _ in range(processes)]
        for each in pumps:
            each.go()

        def check() -> None:
            for each in pumps:
                each.check()

        reading = waiting.timed(
            count, lambda: CpuClock(lambda: [each.tree for each in pumps]), check
        )
        for each in pumps:
            each.end()
    assert count_processed(_LEDGER) == count
    return reading


class PumpProcess:
    """One of them; its app is open, and nothing was received yet."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._stdin = process.stdin
        self._process = process
        assert process.stdout.readline() == "ready\n", "a pump did not start"
        self.tree = psutil.Process(process.pid)

    def go(self) -> None:
        """Start to receive."""
        self._stdin.write("go\n")
        self._stdin.flush()

    def check(self) -> None:
        """Fail if it has ended by itself."""
        assert self._process.poll() is None, "a pump has ended by itself"

    def end(self) -> None:
        """Drain, and close the ledger."""
        self._stdin.close()
        assert self._process.wait(_END_WITHIN_S) == 0


@contextmanager
def _started(waiting: Backlog) -> Iterator[PumpProcess]:
    command = [sys.executable, "-m", f"{__package__}.spark_pump"]
    with subprocess.Popen(
        [*command, waiting.endpoint, waiting.work, str(_LEDGER)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield PumpProcess(process)
        finally:
            process.kill()


async def pump_between_lines(endpoint: str, work: str, ledger: str) -> None:
    """Pump from the first line on standard input to its end."""
    async with make_app(endpoint, work, Path(ledger)) as app:
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        async with app.pumping():
            await asyncio.to_thread(sys.stdin.read)


# On Spark, on the cores of this machine.


def run_on_spark(count: int, *, work: str, cores: int) -> Reading:
    """In a session of its own; see `consume`."""
    from pump.spark.session import SparkOptions, spark_session

    options = SparkOptions(master=f"local[{cores}]", app_name="benchmark")
    with backlog(work) as waiting, spark_session(options) as spark:
        waiting.fill(_WARM_UP * cores)
        _run(spark, waiting, _WARM_UP_LEDGER)
        return consume(spark, waiting, count)


def consume(spark: Any, waiting: Backlog, count: int) -> Reading:
    """Fill the queue, run, and measure from the first delete to the last."""
    waiting.fill(count)
    with ThreadPoolExecutor(1, "run on spark") as thread:
        run = thread.submit(_run, spark, waiting, _LEDGER)
        reading = waiting.timed(count, _clock, lambda: _check(run))
        run.result()
    processed = count_processed(_LEDGER)
    assert processed == count, f"{processed} of {count} messages are in the ledger"
    return reading


def _clock() -> CpuClock:
    # The thread that measures is one of the driver's process, and no part of its work.
    return CpuClock(_spark_processes, less=time.thread_time)


def _check(run: Future[None]) -> None:
    if run.done():
        run.result()
        raise AssertionError("the run ended, and the queue is not empty")


def _spark_processes() -> list[psutil.Process]:
    """This one, which is the driver, the JVM, and the workers; not the server."""
    own = psutil.Process()
    jvms = [each for each in own.children() if each.name() == "java"]
    return [own, *(each for jvm in jvms for each in (jvm, *jvm.children(recursive=True)))]


def _run(spark: Any, waiting: Backlog, ledger: Path) -> None:
    app = make_app(waiting.endpoint, waiting.work)
    app.run_on_spark(spark, until_empty=True, ledger=ledger)


if __name__ == "__main__":
    run_loop(pump_between_lines(*sys.argv[1:]))
