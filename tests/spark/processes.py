"""Processes as Linux shows them: who started whom, and which ones belong to a test."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from pump.clock import SYSTEM_CLOCK

MARK = "PUMP_TEST_RUN"
"""A variable of the environment, which processes hand on to those that they start."""


async def until(is_so: Callable[[], bool], *, within_s: float, what: str) -> None:
    """Look until it is so; a test that waits in vain says for what."""
    deadline_s = SYSTEM_CLOCK.now_s() + within_s
    while not is_so():
        assert SYSTEM_CLOCK.now_s() < deadline_s, f"not within {within_s:g} s: {what}"
        await SYSTEM_CLOCK.sleep(0.05)


def marked(mark: str) -> dict[int, str]:
    """The command lines of all processes that carry this mark."""
    found = {}
    for pid in _pids():
        with suppress(OSError):
            if f"{MARK}={mark}".encode() in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                found[pid] = command_line(pid)
    return found


def command_line(pid: int) -> str:
    """Empty when it has ended."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    return ""


def ancestors(pid: int) -> Iterator[int]:
    """Who started it, who started that one, and so on."""
    while pid > 1:
        try:
            stat = Path(f"/proc/{pid}/stat").read_text()
        except OSError:
            return
        pid = int(stat.rpartition(")")[2].split()[1])
        yield pid


def _pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]
