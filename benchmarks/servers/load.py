"""The loads on SQS servers: throughput over many connections, latency at a steady rate, and very
many messages pending. Every message is accounted for.
"""

from __future__ import annotations

import asyncio
import mmap
import multiprocessing
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import partial
from math import ceil
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from statistics import median
from typing import Any

import attrs
import psutil
import uvloop

from ..reading import Reading, Span
from .client import (
    BATCH,
    Connection,
    Message,
    Requests,
    check_batch,
    messages_in,
    new_queue,
    pending_in,
)
from .running import SERVERS, Server, pump_local

_DATA = Path("data")


def run_life(count: int, *, server: str, processes: int, connections: int) -> Reading:
    """Messages through their whole life, in batches of ten, over many connections."""
    clients = Clients(processes=processes, connections=connections)
    with SERVERS[server](_DATA) as running:
        measure_life(running, max(100, round(count * 0.05)), clients)
        return measure_life(running, count, clients)


def run_latency(count: int, *, server: str, rate: float) -> Reading:
    """Single messages at a steady rate, while another client waits for them."""
    with SERVERS[server](_DATA) as running:
        measure_latency(running, max(20, round(count * 0.1)), rate=rate)
        return measure_latency(running, count, rate=rate)


def run_pending(count: int) -> Reading:
    """`pump local` with very many messages in a queue."""
    return measure_pending(partial(pump_local, _DATA), count)


# Client processes. Each runs one coroutine. They make their requests first, start together, and say
# when work is done; they are killed at the end. So a client that ends by itself has failed.

_PATIENCE_S = 300.0
_fork = multiprocessing.get_context("fork")

Work = Callable[["Signals"], Awaitable[None]]


class Signals:
    """How client processes start together, and say that they are done."""

    def __init__(self, client_count: int) -> None:
        self._start = _fork.Barrier(client_count + 1)
        self._done, self._says_done = _fork.Pipe(duplex=False)

    def ready(self) -> None:
        """Return when all clients are. Blocks."""
        self._start.wait(_PATIENCE_S)

    def finish(self) -> None:
        """Say that something is done: a part of the work, or all of it."""
        self._says_done.send_bytes(b".")

    def wait_until_finished(self, clients: Sequence[BaseProcess]) -> None:
        """Return when a client says so. RuntimeError when one fails, or none does in time."""
        sentinels: list[Any] = [each.sentinel for each in clients]
        found = wait([self._done, *sentinels], _PATIENCE_S)
        if self._done not in found:
            raise RuntimeError("a client ended early" if found else "the clients do not get on")
        self._done.recv_bytes()


class ClientProcesses:
    """Client processes, from their start to their end."""

    def __init__(self, works: Sequence[Work]) -> None:
        self._signals = Signals(len(works))
        self._processes = [
            _fork.Process(target=_run, args=(each, self._signals), daemon=True) for each in works
        ]

    def __enter__(self) -> ClientProcesses:
        for process in self._processes:
            process.start()
        self._signals.ready()
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            process.kill()
            process.join()

    def wait_until_finished(self) -> None:
        """Return when the next client says so. RuntimeError when one fails."""
        self._signals.wait_until_finished(self._processes)

    def cpu_s(self) -> float:
        """Processor time of the clients so far."""
        return sum(sum(psutil.Process(each.pid).cpu_times()[:2]) for each in self._processes)


def _run(work: Work, signals: Signals) -> None:
    async def stay() -> None:
        await work(signals)
        await asyncio.Event().wait()

    uvloop.run(stay())


# Throughput: each connection sends ten messages, receives ten and deletes them, again and again.
# So the queue stays short, which some servers need to be at their best, and all three calls are
# under way at any time. A connection receives whatever is there, mostly what others sent. The
# clock runs from the first send to the last delete.

_SLOT = 8
_LAST_WAIT_S = 1
"""Only a connection with nothing more to send waits for messages: the others have work to do."""


@attrs.frozen(kw_only=True)
class Clients:
    """How many processes, and how many connections each of them has."""

    processes: int
    connections: int


class DeletedMessages:
    """Which messages are deleted, seen by all client processes."""

    def __init__(self, count: int, processes: int) -> None:
        self.count = count
        self._deleted = mmap.mmap(-1, count)
        # One count for each process: no other writes there.
        self._counts = memoryview(mmap.mmap(-1, _SLOT * processes)).cast("q")

    def mark(self, process: int, number: int) -> None:
        """The delete of a message was acknowledged to this process."""
        if not self._deleted[number]:
            self._deleted[number] = 1
            self._counts[process] += 1

    @property
    def is_full(self) -> bool:
        """Whether every message is deleted."""
        return sum(self._counts) >= self.count

    @property
    def missing_count(self) -> int:
        """How many messages were not deleted."""
        return self.count - sum(self._deleted[:])


class _LoadClient:
    """One client process."""

    def __init__(
        self, requests: Requests, deleted: DeletedMessages, process: int, batches: list[range]
    ) -> None:
        self._requests = requests
        self._deleted = deleted
        self._process = process
        self._batches = batches

    async def run(self, signals: Signals, *, connections: int) -> None:
        sends = iter([(self._requests.send_batch(batch), len(batch)) for batch in self._batches])
        signals.ready()
        opened = (Connection(self._requests.endpoint) for _ in range(connections))
        await asyncio.gather(*(self._cycle(connection, sends, signals) for connection in opened))

    async def _cycle(
        self, connection: Connection, sends: Iterator[tuple[bytes, int]], signals: Signals
    ) -> None:
        poll, wait = self._requests.receive(wait_s=0), self._requests.receive(wait_s=_LAST_WAIT_S)
        for request, count in sends:
            check_batch(await connection.call(request), count)
            await self._take(connection, poll)
        while not self._deleted.is_full:
            await self._take(connection, wait)
        # The client that deleted the last one comes here first; the polls of others go on.
        signals.finish()

    async def _take(self, connection: Connection, receive: bytes) -> None:
        messages = messages_in(await connection.call(receive))
        if messages:
            check_batch(await connection.call(self._requests.delete_batch(messages)), len(messages))
            for message in messages:
                self._deleted.mark(self._process, message.number)


def measure_life(server: Server, count: int, clients: Clients) -> Reading:
    """Put `count` messages through the server. Raises AssertionError when one is missing."""
    requests = new_queue(server.endpoint)
    deleted = DeletedMessages(count, clients.processes)
    batches = [range(start, min(start + BATCH, count)) for start in range(0, count, BATCH)]
    processes = ClientProcesses(
        [
            partial(
                _LoadClient(requests, deleted, at, batches[at :: clients.processes]).run,
                connections=clients.connections,
            )
            for at in range(clients.processes)
        ]
    )
    with processes:
        wall_s, cpu_s, client_cpu_s = time.perf_counter(), server.cpu_s(), processes.cpu_s()
        processes.wait_until_finished()
        wall_s = time.perf_counter() - wall_s
        cpu_s, client_cpu_s = server.cpu_s() - cpu_s, processes.cpu_s() - client_cpu_s
    assert deleted.missing_count == 0, (
        f"{deleted.missing_count} of {count} messages are not deleted"
    )
    left_count = pending_in(requests)
    assert left_count == 0, f"{left_count} of {count} messages are left in the queue"
    return Reading(
        messages=count,
        spans={"life": Span(wall_s=wall_s, cpu_s=cpu_s)},
        figures={"client_cpu_s": client_cpu_s},
    )


# Latency: messages sent one by one at a steady rate, whether or not the server keeps up. A send
# that is due goes out over a connection that is free, or a new one; it never waits for the answers
# to those before. One more connection polls long, and what it gets is deleted over others. Times
# are counted from the moment a request is written: if this client itself is late, that is not the
# server's.

_LATENCY_RUNS = 3
_MAX_CONNECTIONS = 400
"""So many requests under way mean that the server does not manage the rate."""


class _ConnectionPool:
    """Connections that are opened when all others are in use."""

    def __init__(self, endpoint: str) -> None:
        self._endpoint = endpoint
        self._free: list[Connection] = []
        self._count = 0

    async def call(self, request: bytes) -> bytes:
        connection = self._free.pop() if self._free else self._open()
        answer = await connection.call(request)
        self._free.append(connection)
        return answer

    def close(self) -> None:
        for connection in self._free:
            connection.close()

    def _open(self) -> Connection:
        self._count += 1
        if self._count > _MAX_CONNECTIONS:
            raise RuntimeError(f"the server is {_MAX_CONNECTIONS} requests behind: ask for less")
        return Connection(self._endpoint)


class _SteadyLoad:
    """One run at one rate."""

    def __init__(self, requests: Requests, count: int, rate: float) -> None:
        self._requests = requests
        self._count = count
        self._rate = rate
        self._connections = _ConnectionPool(requests.endpoint)
        self._written_s = [0.0] * count
        self.sending_s: list[float] = []
        self.receiving_s: list[float] = []

    async def run(self) -> None:
        requests = [self._requests.send_one(number) for number in range(self._count)]
        async with asyncio.TaskGroup() as group:
            group.create_task(self._receive(group))
            started_s = time.perf_counter()
            for number, request in enumerate(requests):
                late_s = time.perf_counter() - (started_s + number / self._rate)
                if late_s < 0:
                    await asyncio.sleep(-late_s)
                group.create_task(self._send(number, request))
        self._connections.close()

    async def _send(self, number: int, request: bytes) -> None:
        self._written_s[number] = time.perf_counter()
        await self._connections.call(request)
        self.sending_s.append(time.perf_counter() - self._written_s[number])

    async def _receive(self, group: asyncio.TaskGroup) -> None:
        connection, request = Connection(self._requests.endpoint), self._requests.receive()
        seen: set[int] = set()
        while len(seen) < self._count:
            messages = messages_in(await connection.call(request))
            now_s = time.perf_counter()
            for number in {message.number for message in messages} - seen:
                seen.add(number)
                self.receiving_s.append(now_s - self._written_s[number])
            if messages:
                group.create_task(self._delete(messages))
        connection.close()

    async def _delete(self, messages: Sequence[Message]) -> None:
        check_batch(
            await self._connections.call(self._requests.delete_batch(messages)), len(messages)
        )


def measure_latency(server: Server, count: int, *, rate: float) -> Reading:
    """Send `count` messages at `rate` a second, a few times, and tell the medians: a machine that
    stands still for a tenth of a second spoils one of the runs, and says nothing about the server.
    The first time does not count: a server that has just started is slower for a few seconds.
    RuntimeError when the server cannot follow.
    """
    _run_once(server, count, rate)
    runs = [_run_once(server, count, rate) for _ in range(_LATENCY_RUNS)]
    names = runs[0].figures
    figures = {name: median(each.figures[name] for each in runs) for name in names}
    return attrs.evolve(
        sorted(runs, key=lambda each: each.cpu_s)[_LATENCY_RUNS // 2], figures=figures
    )


def _run_once(server: Server, count: int, rate: float) -> Reading:
    requests = new_queue(server.endpoint)
    steady = _SteadyLoad(requests, count, rate)
    wall_s, cpu_s = time.perf_counter(), server.cpu_s()
    uvloop.run(steady.run())
    span = Span(wall_s=time.perf_counter() - wall_s, cpu_s=server.cpu_s() - cpu_s)
    assert pending_in(requests) == 0
    return Reading(
        messages=count,
        spans={"steady": span},
        figures={
            "rate": rate,
            **percentiles_ms("sending", steady.sending_s),
            **percentiles_ms("receiving", steady.receiving_s),
        },
    )


def percentiles_ms(name: str, values_s: Sequence[float]) -> dict[str, float]:
    """The median and the 99th percentile, as figures of that name."""
    ordered = sorted(values_s)
    return {
        f"{name}_p{percent}_ms": ordered[ceil(len(ordered) * percent / 100) - 1] * 1000
        for percent in (50, 99)
    }


# Pending: the memory, the receives and the start of a server that holds very many messages. Two
# queues of the same server are received from in turn, one with few messages and one with very
# many; so whatever else goes on hits both alike. Each message received is deleted and another one
# sent, so that the numbers stay.

_FEW = 1_000
_MAX_SAMPLES = 1_000
_FILL_PROCESSES = 2
_FILL_CONNECTIONS = 8

Start = Callable[[], AbstractContextManager[Server]]


def measure_pending(start: Start, count: int) -> Reading:
    """Fill a server, measure it, and start it once more with what is stored."""
    with start() as server:
        few, many = new_queue(server.endpoint), new_queue(server.endpoint)
        _fill(server, few, _FEW)
        span = _fill(server, many, count)
        rss_mib = server.rss_mib()
        sample_count = max(10, min(_MAX_SAMPLES, count // 100))
        few_s, many_s = uvloop.run(_receive_in_turn(few, many, sample_count))
    started_s = time.perf_counter()
    with start() as server:
        left = pending_in(Requests(server.endpoint, many.queue_url))
        started_s = time.perf_counter() - started_s
        assert left == count, f"{left} of {count} messages are there after a start"
        restarted_rss_mib = server.rss_mib()
    return Reading(
        messages=count,
        spans={"fill": span},
        rss_mib=(rss_mib, restarted_rss_mib),
        figures={
            "start_s": started_s,
            **percentiles_ms("few", few_s),
            **percentiles_ms("many", many_s),
        },
    )


def _fill(server: Server, requests: Requests, count: int) -> Span:
    with ClientProcesses(
        [partial(_send, requests, count, at) for at in range(_FILL_PROCESSES)]
    ) as processes:
        wall_s, cpu_s = time.perf_counter(), server.cpu_s()
        for _ in range(_FILL_PROCESSES):
            processes.wait_until_finished()
        span = Span(wall_s=time.perf_counter() - wall_s, cpu_s=server.cpu_s() - cpu_s)
    assert pending_in(requests) == count
    return span


async def _send(requests: Requests, count: int, process: int, signals: Signals) -> None:
    # Made when needed: a million requests would take more memory than the server.
    starts = iter(range(process * BATCH, count, _FILL_PROCESSES * BATCH))

    async def send(connection: Connection) -> None:
        for start in starts:
            batch = range(start, min(start + BATCH, count))
            check_batch(await connection.call(requests.send_batch(batch)), len(batch))

    signals.ready()
    await asyncio.gather(*(send(Connection(requests.endpoint)) for _ in range(_FILL_CONNECTIONS)))
    signals.finish()


@attrs.define
class _Sampler:
    """Receives one message at a time and puts another one in its place."""

    requests: Requests
    connection: Connection
    times_s: list[float] = attrs.field(factory=list)

    async def sample(self) -> None:
        started_s = time.perf_counter()
        answer = await self.connection.call(self.requests.receive(1, wait_s=0))
        self.times_s.append(time.perf_counter() - started_s)
        [message] = messages_in(answer)
        check_batch(await self.connection.call(self.requests.delete_batch([message])), 1)
        await self.connection.call(self.requests.send_one(message.number))


async def _receive_in_turn(
    few: Requests, many: Requests, sample_count: int
) -> tuple[list[float], list[float]]:
    connection = Connection(few.endpoint)
    samplers = [_Sampler(few, connection), _Sampler(many, connection)]
    for _ in range(sample_count):
        for sampler in samplers:
            await sampler.sample()
    connection.close()
    return samplers[0].times_s, samplers[1].times_s
