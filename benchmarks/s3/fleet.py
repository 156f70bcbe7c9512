"""Fleet: the consumers' processes, and the moment when they are done with every message."""

from __future__ import annotations

import selectors
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import IO

import attrs
import psutil

from .designs import Place

_END_WITHIN_S = 60.0
_PATIENCE_S = 300.0


class Member:
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


class Fleet:
    """All of them."""

    def __init__(self, members: list[Member]) -> None:
        self._members = members

    def cpu_s(self) -> float:
        """Processor time of all so far."""
        return sum(each.cpu_s() for each in self._members)

    def go(self) -> None:
        """Start to consume."""
        for each in self._members:
            each.go()

    def wait_until_done(self, count: int) -> None:
        """Return when they are done with so many messages."""
        deadline_s = time.monotonic() + _PATIENCE_S
        with selectors.DefaultSelector() as selector:
            for each in self._members:
                selector.register(each.stdout, selectors.EVENT_READ, each)
            while self._done_count() < count:
                found = selector.select(max(0.0, deadline_s - time.monotonic()))
                assert found, f"{self._done_count()} of {count} messages after {_PATIENCE_S:g} s"
                for key, _ in found:
                    key.data.read()

    def end(self) -> int:
        """Drain all; how many messages they were done with in the end."""
        for each in self._members:
            each.end()
        return self._done_count()

    def _done_count(self) -> int:
        return sum(each.done_count for each in self._members)


@contextmanager
def fleet(place: Place) -> Iterator[Fleet]:
    """The processes of a place, each with its part of the consumers."""
    with ExitStack() as stack:
        started = []
        for process in range(place.processes):
            consumers = _part(place.consumers, process, place.processes)
            own = attrs.evolve(place, process=process, consumers=consumers)
            started.append(stack.enter_context(_start(own)))
            stack.callback(started[-1].kill)
        yield Fleet([Member(each) for each in started])


def _part(consumers: int, process: int, processes: int) -> int:
    return consumers // processes + (process < consumers % processes)


def _start(place: Place) -> subprocess.Popen[bytes]:
    numbers = (place.consumers, place.process, place.processes)
    command = [sys.executable, "-m", f"{__package__}.consumer_process"]
    return subprocess.Popen(
        [*command, place.endpoint, place.design, *map(str, numbers)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        # A line that waits in a buffer of ours would not wake the selector.
        bufsize=0,
    )
