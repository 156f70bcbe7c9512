"""Tasks: work beside its caller, in threads and in the background, and how long it may take."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache, partial
from typing import Any, ParamSpec, TypeVar

from .clock import Clock, Deadline, Timer

_P = ParamSpec("_P")
_T = TypeVar("_T")


async def in_thread(work: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
    """As `asyncio.to_thread`, also when a handler has closed the loop's own pool of threads."""
    loop = asyncio.get_running_loop()
    call: Callable[[], _T] = partial(contextvars.copy_context().run, work, *args, **kwargs)
    try:
        ended = loop.run_in_executor(None, call)
    except RuntimeError:
        ended = loop.run_in_executor(_spare_threads(), call)
    return await ended


async def run_while_held(
    work: Coroutine[Any, Any, _T],
    hold: Callable[[], Awaitable[object]],
    *,
    every_s: float,
    clock: Clock,
    name: str,
) -> _T:
    """Run `work` to its end, and `hold` again and again meanwhile.

    What `hold` raises cancels the work, and so does a cancellation; it has ended when this returns.
    """
    task = asyncio.create_task(work, name=name)
    try:
        while True:
            try:
                async with clock.timeout(every_s):
                    return await asyncio.shield(task)
            except TimeoutError:
                await hold()
    finally:
        task.cancel()
        await asyncio.wait([task])


def look_at(work: asyncio.Future[Any]) -> None:
    """Have looked at how it ended: asyncio complains of an error that is never asked for, as when
    every caller was cancelled.
    """
    if not work.cancelled():
        work.exception()


async def to_the_end(work: Coroutine[Any, Any, _T], name: str | None = None) -> _T:
    """Await what must not be left half done; a cancellation is raised once it is over."""
    task = asyncio.create_task(work, name=name)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        while not task.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait([task])
        look_at(task)
        raise


class BackgroundTasks:
    """Tasks of one object, kept until they are done: the loop keeps none alive.

    Where callers wait for them, an error is theirs, also when they were cancelled meanwhile; where
    none does (`is_awaited=False`), asyncio reports it.
    """

    def __init__(self, owner: str, *, is_awaited: bool = True) -> None:
        self._owner = owner
        self._ended = self._end_quietly if is_awaited else self._end
        self._tasks: set[asyncio.Task[Any]] = set()

    def __len__(self) -> int:
        return len(self._tasks)

    def start(self, work: Coroutine[Any, Any, _T], name: str) -> asyncio.Task[_T]:
        """Run something to its end, whether or not it is waited for."""
        task = asyncio.create_task(work, name=f"{self._owner} {name}")
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    async def opened(
        self, work: Coroutine[Any, Any, _T | None], close: Callable[[_T], Awaitable[object]]
    ) -> _T | None:
        """What `work` opens; cancelled meanwhile, it is closed again as soon as it is there."""
        task = self.start(work, "open")
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            self.start(_close_when_there(task, close), "close")
            raise

    async def finish_current(self) -> None:
        """Wait for those that have been started by now."""
        if self._tasks:
            await asyncio.wait(list(self._tasks))

    async def finish(self) -> None:
        """Wait for all of them, and for what they start."""
        while self._tasks:
            await self.finish_current()

    async def abort(self) -> None:
        """Cancel all of them, and wait for what that leaves to be closed."""
        for task in list(self._tasks):
            task.cancel()
        await self.finish()

    def _end(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)

    def _end_quietly(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        look_at(task)


async def _close_when_there(
    task: asyncio.Task[_T | None], close: Callable[[_T], Awaitable[object]]
) -> None:
    if (opened := await task) is not None:
        await close(opened)


@cache
def _spare_threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(4, thread_name_prefix="pump-spare")


# Deadlines: timeouts of one length, for what is done again and again and nearly always in time.
#
# A timer of the event loop costs more than the rest of a timeout, and here one serves all. They are
# due in the order in which they began, so it waits for the oldest; when it fires it is set for the
# one that is the oldest then.


class Deadlines:
    """`async with deadlines.begin(): …` is `async with clock.timeout(delay_s): …`. On one loop."""

    def __init__(self, clock: Clock, delay_s: float) -> None:
        self._clock = clock
        self._delay_s = delay_s
        self._due_s: dict[_Watch, float] = {}
        self._timer: Timer | None = None

    def begin(self) -> Deadline:
        """A timeout for the body of an `async with`."""
        return Deadline(self, self._delay_s)

    def call_later(self, delay_s: float, callback: Callable[[], object]) -> Timer:
        """As a clock's; the delay is always the same."""
        entry = _Watch(self, callback)
        self._due_s[entry] = self._clock.now_s() + delay_s
        if self._timer is None:
            self._timer = self._clock.call_later(delay_s, self._look)
        return entry

    def forget(self, entry: _Watch) -> None:
        """It ended in time."""
        self._due_s.pop(entry, None)
        if not self._due_s and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        self._timer = None
        now_s = self._clock.now_s()
        for entry, due_s in list(self._due_s.items()):
            if due_s > now_s:
                self._timer = self._clock.call_later(due_s - now_s, self._look)
                return
            del self._due_s[entry]
            entry.callback()


class _Watch:
    __slots__ = ("_deadlines", "callback")

    def __init__(self, deadlines: Deadlines, callback: Callable[[], object]) -> None:
        self._deadlines = deadlines
        self.callback = callback

    def cancel(self) -> None:
        self._deadlines.forget(self)
