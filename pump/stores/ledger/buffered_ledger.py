"""Buffered ledger: gathers events on the loop and has a thread write them, whatever the disk does.

| the disk        | rows                                                                      |
|-----------------|---------------------------------------------------------------------------|
| works           | are written together, `flush_every` after the first of them came          |
| fails           | wait, up to `max_waiting`; the write is tried again after a backoff       |
| goes on failing | that find no room are dropped and counted; one line a minute says so      |
| works again     | that waited are written, and those that come are kept again               |
"""

from __future__ import annotations

import asyncio
import logging
import os
import queue
import secrets
import socket
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import Any, TypeVar

import attrs

from ...backoff import Backoff
from ...clock import SYSTEM_CLOCK, Clock
from ...errors import ConfigurationError, StorageFailed
from ...events import Event
from ...observability import vocabulary
from ...observability.log import get_logger
from .rows import Noted, RowMaker, RowStore

_log = get_logger("pump.ledger")
_COMPLAIN_EVERY_S = 60.0
_RETRY = Backoff(initial=timedelta(milliseconds=100), maximum=timedelta(seconds=5), jitter=0.5)
_LAST_TRIES_S = 0.2
"""Between two tries to write while closing: there is little time left."""
_REMEDY = "free or repair the disk below the ledger; it goes on by itself"


@attrs.frozen(kw_only=True)
class Buffering:
    """How rows wait for the disk."""

    flush_every: timedelta = timedelta(milliseconds=200)
    """Rows are on the disk this long after they came; a crash loses what came since."""
    max_waiting: int = 50_000
    """Rows kept in memory while the disk fails; what comes when they are full is dropped."""
    close_within: timedelta = timedelta(seconds=5)
    """How long closing tries to write what waits."""

    def __attrs_post_init__(self) -> None:
        if self.flush_every <= timedelta(0):
            raise ConfigurationError("flush_every", self.flush_every, "use more than zero")
        if self.max_waiting < 1:
            raise ConfigurationError("max_waiting", self.max_waiting, "use 1 or more")
        if self.close_within <= timedelta(0):
            raise ConfigurationError("close_within", self.close_within, "use more than zero")


DEFAULT_BUFFERING = Buffering()


class BufferedLedger:
    """A ledger in front of a row store. Recording costs an append to a list.

    May be opened again after closing. For one event loop at a time. Survives pickling while it
    is closed.
    """

    def __init__(
        self, path: str, make_store: Callable[[], RowStore], buffering: Buffering, *, detail: bool
    ) -> None:
        self._path = path
        self._make_store = make_store
        self._buffering = buffering
        self._has_detail = detail
        self._clock: Clock = SYSTEM_CLOCK
        self._time_s = SYSTEM_CLOCK.time_s
        self._waiting: list[Noted] = []
        self._writing: list[Noted] = []
        self._room = 0
        self._done_count = 0
        self._dropped_count = 0
        self._complained_s: dict[str, float] = {}
        self._running: _Running | None = None

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._path!r})"

    @property
    def has_detail(self) -> bool:
        """Whether the texts of errors are kept."""
        return self._has_detail

    def new_store(self) -> RowStore:
        """What it writes to, not open yet, for callers that must know that a row is on the disk."""
        return self._make_store()

    @property
    def dropped_count(self) -> int:
        """Rows that were not kept since the ledger was made, because the disk was full or slow."""
        return self._dropped_count

    @property
    def waiting_count(self) -> int:
        """Rows in memory that are not yet on the disk."""
        return len(self._waiting) + len(self._writing)

    def record(self, event: Event) -> None:
        waiting = self._waiting
        if len(waiting) >= self._room:
            self._drop()
            return
        if not waiting and self._running is not None:
            self._running.has_rows.set()
        waiting.append((event, self._time_s()))

    async def open(self, gateway: str, clock: Clock) -> None:
        if self._running is not None:
            raise ConfigurationError("ledger", self._path, "it is open already; give each app one")
        self._clock, self._time_s = clock, clock.time_s
        # A new one each time: a disk that hangs may still hold on to the one before.
        store = self._make_store()
        thread = WriterThread("pump-ledger")
        try:
            await thread.do(store.open)
        except BaseException:
            thread.do_unheard(partial(store.close, clock.time_s()))
            thread.end()
            raise
        maker = RowMaker(gateway=gateway, pump=pump_name(), has_detail=self._has_detail)
        running = self._running = _Running(store, thread, maker)
        self._room = self._buffering.max_waiting
        running.writer = asyncio.create_task(self._write(running), name="ledger-writer")
        if store.care_every_s is not None:
            running.carer = asyncio.create_task(self._care(running), name="ledger-carer")

    async def flush(self) -> None:
        """Return once everything recorded so far is on the disk, however long that takes."""
        running = self._running
        if running is None:
            return
        target = self._done_count + self.waiting_count
        while self._done_count < target and not running.is_over:
            running.hurry.set()
            running.written.clear()
            await running.written.wait()

    async def aclose(self) -> None:
        """Write what is left, for `close_within` at most; harmless when closed already."""
        running = self._running
        if running is None or running.closing.is_set():
            return
        try:
            async with self._clock.timeout(self._buffering.close_within.total_seconds()):
                await self._finish(running)
        except Exception as error:  # broad: no ledger may spoil how its app ends
            self._say(vocabulary.LEDGER_UNFINISHED, _reason(error))
        finally:
            self._running = None
            self._room = 0
            self._dropped_count += self.waiting_count
            self._waiting, self._writing = [], []
            if running.is_store_left:
                # It is not waited for any more; what it holds is for others to take.
                running.thread.do_unheard(partial(running.store.close, self._clock.time_s()))
            running.stop()

    async def _finish(self, running: _Running) -> None:
        running.closing.set()
        running.hurry.set()
        running.has_rows.set()
        if running.carer is not None:
            running.carer.cancel()
        if running.writer is not None:
            await running.writer
        running.is_store_left = False
        await running.thread.do(partial(running.store.close, self._clock.time_s()))

    # -- the writer ----------------------------------------------------------------------------

    async def _write(self, running: _Running) -> None:
        while self._waiting or not running.closing.is_set():
            await running.has_rows.wait()
            if not running.closing.is_set():
                await self._wait(running.hurry, self._buffering.flush_every.total_seconds())
                running.has_rows.clear()
            running.hurry.clear()
            await self._write_waiting(running)

    async def _write_waiting(self, running: _Running) -> None:
        self._writing, self._waiting = self._waiting, []
        self._room = self._buffering.max_waiting - len(self._writing)
        failure_count = 0
        while self._writing:
            append = partial(_append, running.store, running.maker, self._writing)
            try:
                wants_care = await running.thread.do(append)
            except StorageFailed as error:
                failure_count += 1
                self._complain(vocabulary.LEDGER_UNWRITTEN, str(error))
                await self._back_off(running, failure_count)
            except Exception as error:  # broad: rows no store can take must not stop the others
                self._dropped_count += len(self._writing)
                self._say(vocabulary.ROWS_REFUSED, type(error).__name__)
                self._end_write(running)
            else:
                self._end_write(running)
                if wants_care:
                    running.care_asked.set()
                if failure_count:
                    dropped = self._dropped_count
                    _log.info(vocabulary.LEDGER_RECOVERED, path=self._path, dropped=dropped)

    def _end_write(self, running: _Running) -> None:
        self._done_count += len(self._writing)
        self._writing = []
        self._room = self._buffering.max_waiting
        running.written.set()

    async def _back_off(self, running: _Running, failure_count: int) -> None:
        delay_s = _RETRY.delay_s(failure_count, self._clock.chance())
        if running.closing.is_set():
            await self._clock.sleep(min(delay_s, _LAST_TRIES_S))
        else:
            await self._wait(running.closing, delay_s)

    async def _wait(self, for_: asyncio.Event, at_most_s: float) -> None:
        with suppress(TimeoutError):
            async with self._clock.timeout(at_most_s):
                await for_.wait()

    # -- the carer -----------------------------------------------------------------------------

    async def _care(self, running: _Running) -> None:
        failure_count = 0
        every_s = running.store.care_every_s
        assert every_s is not None
        while True:
            try:
                await running.thread.do(partial(running.store.care, self._clock.time_s()))
                failure_count = 0
            except Exception as error:  # broad: rows stay where they are, and it is tried again
                failure_count += 1
                self._complain(vocabulary.LEDGER_UNROLLED, str(error))
                await self._clock.sleep(_RETRY.delay_s(failure_count, self._clock.chance()))
                continue
            await self._wait(running.care_asked, every_s)
            running.care_asked.clear()

    # -- what is lost --------------------------------------------------------------------------

    def _drop(self) -> None:
        self._dropped_count += 1
        if self._running is not None:
            self._complain(vocabulary.ROWS_DROPPED, "the rows that wait have no more room")

    def _complain(self, event: str, error: str) -> None:
        """Say it, once a minute at most."""
        now_s = self._clock.now_s()
        if now_s - self._complained_s.get(event, -_COMPLAIN_EVERY_S) >= _COMPLAIN_EVERY_S:
            self._complained_s[event] = now_s
            self._say(event, error)

    def _say(self, event: str, error: str) -> None:
        _log.log(
            logging.WARNING if event in _HEALS_ITSELF else logging.ERROR,
            event,
            path=self._path,
            error=error,
            count=self.waiting_count,
            dropped=self._dropped_count,
            remedy=_REMEDY,
        )


_HEALS_ITSELF = {vocabulary.LEDGER_UNWRITTEN, vocabulary.LEDGER_UNROLLED}


class _Running:
    """What exists between opening and closing."""

    def __init__(self, store: RowStore, thread: WriterThread, maker: RowMaker) -> None:
        self.store = store
        self.thread = thread
        self.maker = maker
        self.has_rows = asyncio.Event()
        self.hurry = asyncio.Event()
        self.written = asyncio.Event()
        self.care_asked = asyncio.Event()
        self.closing = asyncio.Event()
        self.is_over = False
        self.is_store_left = True
        """Whether the store was not told to close yet."""
        self.writer: asyncio.Task[None] | None = None
        self.carer: asyncio.Task[None] | None = None

    def stop(self) -> None:
        """End the tasks and the thread; a job under way is not waited for."""
        self.is_over = True
        self.written.set()
        for task in (self.writer, self.carer):
            if task is not None:
                task.cancel()
        self.thread.end()


def _append(store: RowStore, maker: RowMaker, noted: list[Noted]) -> bool:
    rows = maker(noted)
    return bool(rows) and store.append(rows)


def _reason(error: Exception) -> str:
    return "it took too long" if isinstance(error, TimeoutError) else str(error)


def pump_name() -> str:
    """Who writes: another name for every ledger that is opened."""
    # In a container the process id is 1 after every start, so a part of it must be chance.
    return f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"


# A thread for blocking work, one job after the other, that never keeps its process from ending.

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

        Cancelled before its turn, it is not done; cancelled later, it is done unheard.
        """
        future: Future[_T] = Future()
        self._jobs.put((future, job))
        return await asyncio.wrap_future(future)

    def do_unheard(self, job: Callable[[], object]) -> None:
        """Have the job done some time; its result is dropped."""
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
