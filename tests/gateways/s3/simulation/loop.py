"""An event loop without a machine: no sockets, no threads, and time that passes when all wait.

What runs on it is the real code of the queues. Callbacks run in the order they were made, timers in
the order of their times, so a run is a function of its seed.
"""

from __future__ import annotations

import asyncio
import heapq
from asyncio.events import _set_running_loop
from collections.abc import Callable
from contextvars import Context, ContextVar
from itertools import count
from typing import Any, TypeVarTuple

_Args = TypeVarTuple("_Args")
_Context = dict[str, Any]

owner: ContextVar[list[asyncio.Task[Any]] | None] = ContextVar("owner", default=None)
"""The tasks of the process that runs: what it starts belongs to it and dies with it."""


class VirtualLoop(asyncio.BaseEventLoop):
    """Runs callbacks until told to stop; its time is the true time of the simulated world."""

    def __init__(self, start_s: float) -> None:
        super().__init__()
        self.now_s = start_s
        self.errors: list[_Context] = []
        """What nobody has caught."""
        self._soon: list[asyncio.Handle] = []
        self._later: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._ties = count()

    def time(self) -> float:
        return self.now_s

    def create_task(self, coro: Any, **options: Any) -> asyncio.Task[Any]:
        task: asyncio.Task[Any] = asyncio.Task(coro, loop=self, **options)
        tasks = owner.get()
        if tasks is not None:
            tasks.append(task)
        return task

    def call_soon(
        self, callback: Callable[[*_Args], object], *args: *_Args, context: Context | None = None
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        self._soon.append(handle)
        return handle

    def call_later(
        self,
        delay: float,
        callback: Callable[[*_Args], object],
        *args: *_Args,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        return self.call_at(self.now_s + delay, callback, *args, context=context)

    def call_at(
        self,
        when: float,
        callback: Callable[[*_Args], object],
        *args: *_Args,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        heapq.heappush(self._later, (when, next(self._ties), handle))
        return handle

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Nothing: a cancelled timer is skipped when its time has come."""

    def call_exception_handler(self, context: _Context) -> None:
        self.errors.append(context)

    def run_while(self, is_going_on: Callable[[], bool]) -> None:
        """Run until the condition fails or nothing is left to happen."""
        _set_running_loop(self)
        try:
            while is_going_on() and self._step():
                pass
        finally:
            _set_running_loop(None)

    def run_ready(self) -> None:
        """Run until everything waits; no time passes."""
        self.run_while(lambda: bool(self._soon))

    def _step(self) -> bool:
        """Run what is ready, or let time pass until something is; False when nothing ever will."""
        while not self._soon:
            if not self._later:
                return False
            when_s, _, timer = heapq.heappop(self._later)
            if not timer.cancelled():
                self.now_s = max(self.now_s, when_s)
                self._soon.append(timer)
        ready, self._soon = self._soon, []
        for handle in ready:
            if not handle.cancelled():
                handle._run()
        return True


def new_loop(start_s: float) -> VirtualLoop:
    """A loop without sockets and signals; whoever makes it closes it."""
    return VirtualLoop(start_s)
