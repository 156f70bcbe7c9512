"""Queues on S3: messages are sent, then consumed by processes, and every request is counted."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import re
import selectors
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from http.client import HTTPConnection
from typing import IO, Any
from urllib.parse import urlsplit

import attrs
import psutil

from pump.event_loop import run as run_loop

from ..reading import ROOT, Reading, Span, Stopwatch
from .s3_designs import BUCKET, QUEUE, ConsumerSettings, sending
from .sqs_rig import aws_environment

_SEND_BATCH = 100
"""Messages a call, as in the other groups."""
_SENDERS = 10
"""Calls under way at once: no sender that is 60 ms away sends one after the other."""
_END_WITHIN_S = 60.0
_PATIENCE_S = 300.0
_FOLDER = f"queues/{QUEUE}/"
_BATCH = re.compile(r"messages/(\d+)-(\d+)")
_LEASE = re.compile(r"pending/(\d+)\.\d+/lease\.json")


def run(
    count: int, *, design: str, consumers: int = 10, processes: int = 1, latency_ms: float = 0.0
) -> Reading:
    """Send `count`, then start the clock anew and consume them; nothing may be left."""
    with s3_rig() as rig:
        settings = ConsumerSettings(
            endpoint=rig.endpoint, design=design, consumers=consumers, processes=processes
        )
        sent = run_loop(_send(rig, count, settings, latency_ms))
        sent_calls = Counter(rig.counts())
        consumed = _consume(rig, count, settings, latency_ms)
        calls = sent_calls + Counter(consumed.calls)
        left = unfinished(rig.sizes())
    assert not left, f"there is more to do: {left[:3]}, {len(left)} in all"
    figures = {f"sent_{kind}_count": float(number) for kind, number in sent_calls.items()}
    return attrs.evolve(
        consumed, spans={**sent.spans, **consumed.spans}, calls=calls, figures=figures
    )


async def _send(rig: Rig, count: int, settings: ConsumerSettings, latency_ms: float) -> Reading:
    starts = iter(range(0, count, _SEND_BATCH))
    watch = Stopwatch()
    async with sending(settings) as send:

        async def work() -> None:
            for start in starts:
                await send(range(start, min(start + _SEND_BATCH, count)))

        await asyncio.to_thread(rig.start, latency_ms)
        with watch.span("send"):
            async with asyncio.TaskGroup() as group:
                for _ in range(_SENDERS):
                    group.create_task(work())
    return watch.reading(count)


def _consume(rig: Rig, count: int, settings: ConsumerSettings, latency_ms: float) -> Reading:
    with consumer_processes(settings) as consumers:
        gc.collect()
        rig.start(latency_ms)
        wall_s, cpu_s = time.perf_counter(), consumers.cpu_s()
        consumers.go()
        consumers.wait_until_done(count)
        span = Span(wall_s=time.perf_counter() - wall_s, cpu_s=consumers.cpu_s() - cpu_s)
        calls = rig.counts()
        assert (done := consumers.end()) == count, f"{done} of {count} messages were acked"
    return Reading(messages=count, spans={"consume": span}, calls=calls)


def unfinished(sizes: Mapping[str, int]) -> list[str]:
    """What is still to be done, in words or keys; nothing when every message was acked.

    The layout of leases keeps a batch for a minute after it was written, so that a write which was
    long on its way finds it; that a message of it is done is said by an empty lease.
    """
    own = {key.removeprefix(_FOLDER): size for key, size in sizes.items()}
    done: dict[str, int] = {}
    for key, size in own.items():
        if (lease := _LEASE.fullmatch(key)) and size == 0:
            done[lease[1]] = done.get(lease[1], 0) + 1
    left = []
    for key in own:
        if batch := _BATCH.fullmatch(key):
            if (open_count := int(batch[2]) - done.get(batch[1], 0)) > 0:
                left.append(f"{open_count} of {key}")
        elif key.startswith(("messages/", "segments/", "leases/")):
            left.append(key)
    return left


# The stand-in.


class Rig:
    """A fresh stand-in. Every bucket is there, and empty."""

    def __init__(self, endpoint: str) -> None:
        self.endpoint = endpoint

    def start(self, latency_ms: float) -> None:
        """From here on a request takes so much longer, and counts."""
        self._ask(f"measure?ms={latency_ms:g}")

    def counts(self) -> dict[str, int]:
        """Requests since the start, by what they are billed as."""
        found: dict[str, int] = self._ask("counts")
        return found

    def sizes(self) -> dict[str, int]:
        """What is in the bucket: the size of each object, by key."""
        found: dict[str, int] = self._ask(f"sizes?bucket={BUCKET}")
        return found

    def _ask(self, path: str) -> Any:
        connection = HTTPConnection(urlsplit(self.endpoint).netloc, timeout=_PATIENCE_S)
        try:
            connection.request("GET", f"/-/{path}")
            return json.loads(connection.getresponse().read())
        finally:
            connection.close()


@contextmanager
def s3_rig() -> Iterator[Rig]:
    """A stand-in of its own; meanwhile SDKs find credentials, and no user's settings."""
    with (
        aws_environment(),
        subprocess.Popen(
            [sys.executable, "-m", "benchmarks.servers.s3_stand_in"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
            text=True,
        ) as server,
    ):
        assert server.stdin is not None
        assert server.stdout is not None
        try:
            yield Rig(server.stdout.readline().strip())
        finally:
            server.stdin.close()


# The processes of the consumers.


class ConsumerProcess:
    """One process; open, and not consuming yet."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._process = process
        self._stdin = process.stdin
        self.stdout: IO[bytes] = process.stdout
        self.done_count = 0
        assert self.stdout.readline() == b"ready\n", "a consumer did not start"
        self._tree = psutil.Process(process.pid)

    def go(self) -> None:
        """Start to consume."""
        self._stdin.write(b"go\n")
        self._stdin.flush()

    def read(self) -> None:
        """Take in the next line; fails if the process has ended by itself."""
        line = self.stdout.readline()
        assert line, "a consumer has ended by itself"
        self.done_count = int(line)

    def cpu_s(self) -> float:
        """Processor time so far."""
        return float(sum(self._tree.cpu_times()[:2]))

    def end(self) -> None:
        """Drain and close."""
        self._stdin.close()
        for line in self.stdout:
            self.done_count = int(line)
        assert self._process.wait(_END_WITHIN_S) == 0


class ConsumerProcesses:
    """All of them."""

    def __init__(self, processes: list[ConsumerProcess]) -> None:
        self._processes = processes

    def cpu_s(self) -> float:
        """Processor time of all so far."""
        return sum(each.cpu_s() for each in self._processes)

    def go(self) -> None:
        """Start to consume."""
        for each in self._processes:
            each.go()

    def wait_until_done(self, count: int) -> None:
        """Return when they are done with so many messages."""
        deadline_s = time.monotonic() + _PATIENCE_S
        with selectors.DefaultSelector() as selector:
            for each in self._processes:
                selector.register(each.stdout, selectors.EVENT_READ, each)
            while self._done_count() < count:
                found = selector.select(max(0.0, deadline_s - time.monotonic()))
                assert found, f"{self._done_count()} of {count} messages after {_PATIENCE_S:g} s"
                for key, _ in found:
                    key.data.read()

    def end(self) -> int:
        """Drain all; how many messages they were done with in the end."""
        for each in self._processes:
            each.end()
        return self._done_count()

    def _done_count(self) -> int:
        return sum(each.done_count for each in self._processes)


@contextmanager
def consumer_processes(settings: ConsumerSettings) -> Iterator[ConsumerProcesses]:
    """As many as the settings say, each with its part of the consumers."""
    with ExitStack() as stack:
        started = []
        for process in range(settings.processes):
            consumers = _part(settings.consumers, process, settings.processes)
            own = attrs.evolve(settings, process=process, consumers=consumers)
            started.append(stack.enter_context(_start(own)))
            stack.callback(started[-1].kill)
        yield ConsumerProcesses([ConsumerProcess(each) for each in started])


def _part(consumers: int, process: int, processes: int) -> int:
    return consumers // processes + (process < consumers % processes)


def _start(settings: ConsumerSettings) -> subprocess.Popen[bytes]:
    numbers = (settings.consumers, settings.process, settings.processes)
    command = [sys.executable, "-m", f"{__package__}.s3_designs"]
    return subprocess.Popen(
        [*command, settings.endpoint, settings.design, *map(str, numbers)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        # A line that waits in a buffer of ours would not wake the selector.
        bufsize=0,
    )
