"""Memory of this process and its children, while something runs."""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Self

import psutil

_LOOK_S = 0.1


def own_processes() -> list[psutil.Process]:
    """This one and its children, a JVM among them where there is one."""
    own = psutil.Process()
    return [own, *own.children(recursive=True)]


class PeakMemory:
    """The largest resident memory of all of them together, looked at ten times a second."""

    def __init__(self) -> None:
        self.peak_mib = 0.0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="peak memory", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        while True:
            self.peak_mib = max(self.peak_mib, _resident_mib())
            if self._ended.wait(_LOOK_S):
                return


def _resident_mib() -> float:
    total = 0
    for each in own_processes():
        try:
            total += each.memory_info().rss
        except psutil.NoSuchProcess:
            continue
    return total / 2**20
