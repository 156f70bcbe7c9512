"""Life: many connections at once send ten messages, receive ten and delete them, again and again.

So the queue stays short, which some servers need to be at their best, and all three calls are
under way at any time. A connection receives whatever is there, mostly what others sent. The clock
runs from the first send to the last delete. Every message is accounted for: it was received, its
delete was acknowledged, and at the end the server says that the queue is empty.
"""

from __future__ import annotations

import asyncio
import mmap
import time
from collections.abc import Iterator
from functools import partial

import attrs

from ..reading import Reading, Span
from .calls import BATCH, Calls, check_batch, messages_in
from .crew import Crew, Signals
from .running import Server
from .target import new_queue, pending_in
from .wire import Wire

_SLOT = 8
_LAST_WAIT_S = 1
"""Only who has nothing more to send waits for messages: the others have better things to do."""


@attrs.frozen(kw_only=True)
class Clients:
    """How many processes, and how many connections each of them has."""

    processes: int
    connections: int


class Board:
    """Which messages are deleted, seen by all client processes."""

    def __init__(self, count: int, processes: int) -> None:
        self.count = count
        self._deleted = mmap.mmap(-1, count)
        # A place for each process: nobody else writes there.
        self._tallies = memoryview(mmap.mmap(-1, _SLOT * processes)).cast("q")

    def mark(self, process: int, number: int) -> None:
        """The delete of a message was acknowledged to this process."""
        if not self._deleted[number]:
            self._deleted[number] = 1
            self._tallies[process] += 1

    @property
    def is_full(self) -> bool:
        """Whether every message is deleted."""
        return sum(self._tallies) >= self.count

    @property
    def missing_count(self) -> int:
        """How many messages nobody deleted."""
        return self.count - sum(self._deleted[:])


class _Client:
    """One process of the crew."""

    def __init__(self, calls: Calls, board: Board, process: int, batches: list[range]) -> None:
        self._calls = calls
        self._board = board
        self._process = process
        self._batches = batches

    async def run(self, signals: Signals, *, connections: int) -> None:
        sends = iter([(self._calls.send_batch(batch), len(batch)) for batch in self._batches])
        signals.ready()
        wires = (Wire(self._calls.endpoint) for _ in range(connections))
        await asyncio.gather(*(self._cycle(wire, sends, signals) for wire in wires))

    async def _cycle(
        self, wire: Wire, sends: Iterator[tuple[bytes, int]], signals: Signals
    ) -> None:
        poll, wait = self._calls.receive(wait_s=0), self._calls.receive(wait_s=_LAST_WAIT_S)
        for request, count in sends:
            check_batch(await wire.call(request), count)
            await self._take(wire, poll)
        while not self._board.is_full:
            await self._take(wire, wait)
        # Whoever deleted the last one comes here first; the others' polls go on for a while.
        signals.finish()

    async def _take(self, wire: Wire, receive: bytes) -> None:
        messages = messages_in(await wire.call(receive))
        if messages:
            check_batch(await wire.call(self._calls.delete_batch(messages)), len(messages))
            for message in messages:
                self._board.mark(self._process, message.number)


def run_life(server: Server, count: int, clients: Clients) -> Reading:
    """Put `count` messages through the server. Raises AssertionError when one is missing."""
    calls = new_queue(server.endpoint)
    board = Board(count, clients.processes)
    batches = [range(start, min(start + BATCH, count)) for start in range(0, count, BATCH)]
    crew = Crew(
        [
            partial(
                _Client(calls, board, at, batches[at :: clients.processes]).run,
                connections=clients.connections,
            )
            for at in range(clients.processes)
        ]
    )
    with crew:
        wall_s, cpu_s, client_cpu_s = time.perf_counter(), server.cpu_s(), crew.cpu_s()
        crew.wait_until_finished()
        wall_s = time.perf_counter() - wall_s
        cpu_s, client_cpu_s = server.cpu_s() - cpu_s, crew.cpu_s() - client_cpu_s
    assert board.missing_count == 0, f"{board.missing_count} of {count} messages are not deleted"
    left_count = pending_in(calls)
    assert left_count == 0, f"{left_count} of {count} messages are left in the queue"
    return Reading(
        messages=count,
        spans={"life": Span(wall_s=wall_s, cpu_s=cpu_s)},
        figures={"client_cpu_s": client_cpu_s},
    )
