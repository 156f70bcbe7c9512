"""A thread for blocking work, one job after the other, that never keeps its process from ending."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

_T = TypeVar("_T")


class WriterThread:
    """Does the jobs in the order given.

    A daemon, unlike an executor's threads: a disk that does not answer must not hold up the end
    of the program. Its jobs are written such that dying at any moment does no harm.
    """

    def __init__(self, name: str) -> None:
        self._jobs: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None]
        self._jobs = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    async def do(self, job: Callable[[], _T]) -> _T:
        """Have the job done and return, or raise, what it does.

        Cancelled before its turn, it is not done; cancelled later, it is done, and nobody hears.
        """
        future: Future[_T] = Future()
        self._jobs.put((future, job))
        return await asyncio.wrap_future(future)

    def do_unheard(self, job: Callable[[], object]) -> None:
        """Have the job done some time; what becomes of it, nobody hears."""
        self._jobs.put((Future(), job))

    def end(self) -> None:
        """End after the jobs given so far; does not wait for it."""
        self._jobs.put(None)

    def _work(self) -> None:
        while (given := self._jobs.get()) is not None:
            future, job = given
            if future.set_running_or_notify_cancel():
                _do(future, job)


def _do(future: Future[Any], job: Callable[[], Any]) -> None:
    try:
        result = job()
    except Exception as error:  # broad: raised again where it is awaited
        future.set_exception(error)
    else:
        future.set_result(result)
