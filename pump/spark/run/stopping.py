"""Stopping: signals to a driver that waits, whatever else runs in its process.

The driver's event loop has a thread of its own, so that it works in a notebook too, and so that
the main thread is never inside the JVM when a signal comes.
"""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import Any, TypeVar

_T = TypeVar("_T")
_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_WAIT_S = 0.5


class Stops:
    """Carries stops from any thread to whoever is to stop; those that came early too."""

    def __init__(self) -> None:
        # One signal may come while another is handled.
        self._lock = threading.RLock()
        self._early_count = 0
        self._stop: Callable[[], None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def ask(self) -> None:
        """Stop; asked again, at once."""
        with self._lock:
            if self._stop is None or self._loop is None:
                self._early_count += 1
            else:
                self._loop.call_soon_threadsafe(self._stop)

    @contextmanager
    def told_to(self, stop: Callable[[], None]) -> Iterator[None]:
        """Call `stop` on the running loop, for each that was asked for."""
        with self._lock:
            self._stop, self._loop = stop, asyncio.get_running_loop()
            early_count = self._early_count
        for _ in range(early_count):
            stop()
        try:
            yield
        finally:
            with self._lock:
                self._stop = self._loop = None


def run_stoppable(make: Callable[[Stops], Coroutine[Any, Any, _T]]) -> _T:
    """Run a coroutine to its end; SIGTERM and Ctrl-C meanwhile are stops."""
    stops = Stops()
    with _handled(stops.ask), ThreadPoolExecutor(1, thread_name_prefix="pump-spark") as thread:
        # Whatever it ends with is raised here, also what is no `Exception`.
        ended = thread.submit(lambda: asyncio.run(make(stops)))
        while not ended.done():
            wait([ended], _WAIT_S)
    return ended.result()


@contextmanager
def _handled(ask: Callable[[], None]) -> Iterator[None]:
    """Have signals ask; PySpark's own handler of Ctrl-C would cancel every job."""
    if threading.current_thread() is not threading.main_thread():
        yield  # Only the main thread may handle signals: whoever runs us ends us.
        return
    before = {each: signal.signal(each, lambda number, frame: ask()) for each in _SIGNALS}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
