"""Crew: client processes that start together, and what they have in common.

Each runs one coroutine. They make their requests first, wait for one another, and never end by
themselves: they say when work is done, and the crew is sent home. So a member that ends has
failed.
"""

from __future__ import annotations

import asyncio
import multiprocessing
from collections.abc import Awaitable, Callable, Sequence
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from typing import Any

import psutil
import uvloop

_PATIENCE_S = 300.0
_processes = multiprocessing.get_context("fork")

Member = Callable[["Signals"], Awaitable[None]]


class Signals:
    """What a member may do beside its work."""

    def __init__(self, member_count: int) -> None:
        self._start = _processes.Barrier(member_count + 1)
        self._done, self._says_done = _processes.Pipe(duplex=False)

    def ready(self) -> None:
        """Return when everybody is. Blocks."""
        self._start.wait(_PATIENCE_S)

    def finish(self) -> None:
        """Say that something is done: a part of the work, or all of it."""
        self._says_done.send_bytes(b".")

    def wait_until_finished(self, members: Sequence[BaseProcess]) -> None:
        """Return when a member says so. Raises RuntimeError when one fails, or none does."""
        sentinels: list[Any] = [each.sentinel for each in members]
        found = wait([self._done, *sentinels], _PATIENCE_S)
        if self._done not in found:
            raise RuntimeError("a client ended early" if found else "the clients do not get on")
        self._done.recv_bytes()


class Crew:
    """Client processes, from their start to their end."""

    def __init__(self, members: Sequence[Member]) -> None:
        self._signals = Signals(len(members))
        self._members = [
            _processes.Process(target=_run, args=(each, self._signals), daemon=True)
            for each in members
        ]

    def __enter__(self) -> Crew:
        for member in self._members:
            member.start()
        self._signals.ready()
        return self

    def __exit__(self, *_: object) -> None:
        for member in self._members:
            member.kill()
            member.join()

    def wait_until_finished(self) -> None:
        """Return when the next member says so. Raises RuntimeError when a client fails."""
        self._signals.wait_until_finished(self._members)

    def cpu_s(self) -> float:
        """Processor time of the clients so far."""
        return sum(sum(psutil.Process(each.pid).cpu_times()[:2]) for each in self._members)


def _run(member: Member, signals: Signals) -> None:
    async def stay() -> None:
        await member(signals)
        await asyncio.Event().wait()

    uvloop.run(stay())
