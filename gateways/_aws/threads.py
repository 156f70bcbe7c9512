"""Threads for blocking calls, started as they are needed and never waited for at exit.

`ThreadPoolExecutor` joins its threads when the process ends: a call that nobody waits for any
more, to a server that does not answer, would keep a process alive for minutes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from itertools import count
from queue import SimpleQueue
from typing import Any

_Work = tuple[Future[Any], Callable[..., Any], tuple[Any, ...]]


class DaemonThreads:
    """At most so many threads, which are reused, for the calls of one event loop."""

    def __init__(self, limit: int, name: str) -> None:
        self._limit = limit
        self._name = name
        self._numbers = count(1)
        self._started = 0
        self._idle = threading.Semaphore(0)
        self._work: SimpleQueue[_Work | None] = SimpleQueue()

    def submit(self, function: Callable[..., Any], *args: object) -> Future[Any]:
        """Have a thread call the function; when all are busy, the next that is not."""
        future: Future[Any] = Future()
        self._work.put((future, function, args))
        if not self._idle.acquire(blocking=False) and self._started < self._limit:
            self._started += 1
            name = f"{self._name}-{next(self._numbers)}"
            threading.Thread(target=self._run, name=name, daemon=True).start()
        return future

    def shutdown(self) -> None:
        """Let each thread end after what it does now; do not wait for it."""
        for _ in range(self._started):
            self._work.put(None)

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            _perform(*work)
            # An idle thread must not keep the last result alive.
            del work
            self._idle.release()


def _perform(future: Future[Any], function: Callable[..., Any], args: tuple[Any, ...]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        result = function(*args)
    except Exception as error:  # broad: it belongs to who waits for the future
        future.set_exception(error)
    else:
        future.set_result(result)
