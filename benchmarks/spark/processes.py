"""Processes: ordinary pumps side by side, as anyone would start two."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psutil

from ..reading import Reading
from .backlog import Backlog, Clock, backlog
from .outcomes import count_processed

_LEDGER = Path("ledger")
_END_WITHIN_S = 60.0


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


def measure_processes(count: int, work: str, processes: int) -> Reading:
    """From the first delete to the last."""
    with backlog(work) as waiting, ExitStack() as stack:
        waiting.fill(count)
        pumps = [stack.enter_context(_started(waiting)) for _ in range(processes)]
        for each in pumps:
            each.go()

        def check() -> None:
            for each in pumps:
                each.check()

        reading = waiting.timed(count, lambda: Clock(lambda: [each.tree for each in pumps]), check)
        for each in pumps:
            each.end()
    assert count_processed(_LEDGER) == count
    return reading


@contextmanager
def _started(waiting: Backlog) -> Iterator[PumpProcess]:
    command = [sys.executable, "-m", f"{__package__}.pump_process"]
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
