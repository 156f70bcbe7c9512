"""A clock that stands still until a test moves it, and knows when the program has come to rest."""

from __future__ import annotations

import asyncio
import gc
import heapq
import itertools
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

import attrs

from ..clock import SYSTEM_CLOCK, Clock, Timer, yield_to_loop
from ..message import new_id

START_S = 1_000.0
"""Where `now_s` starts: not at zero, so that a first moment is never taken for no moment."""
EPOCH_S = 1_750_000_000.0
"""Where `time_s` starts: 15 June 2025, 15:06:40 UTC."""

_IN_THREADS: WeakKeyDictionary[asyncio.AbstractEventLoop, set[asyncio.Future[Any]]] = (
    WeakKeyDictionary()
)
_THREADED_MODULES = frozenset({"aiosqlite.core", "asyncio.threads"})
# What awaiting a coroutine's `__await__` and an async generator (`@asynccontextmanager`) puts in
# between; only the collector can see through it.
_OPAQUE = frozenset({"coroutine_wrapper", "async_generator_asend", "async_generator_athrow"})


@attrs.define(eq=False)
class _VirtualTimer:
    due_s: float
    callback: Callable[[], object]
    is_cancelled: bool = False

    def cancel(self) -> None:
        self.is_cancelled = True


class VirtualClock(Clock):
    """Time passes in `advance` only, timer by timer, and between two timers all tasks run.

    Work in a thread (aiosqlite, `asyncio.to_thread`, an executor) counts as running for up to
    `thread_patience_s` of real time, whether a task waits for it directly, behind a shield or not
    at all, so that virtual time does not overtake a commit. `chance` always returns the number it
    was given.
    """

    def __init__(
        self,
        *,
        chance: float = 0.5,
        max_rounds: int = 100_000,
        thread_patience_s: float = 2.0,
        starts_at_s: float = START_S,
    ) -> None:
        self._elapsed_s = 0.0
        self._wall_step_s = 0.0
        self._boot_id = new_id()
        self._start_s = starts_at_s
        self._chance = chance
        self._max_rounds = max_rounds
        self._thread_patience_s = thread_patience_s
        self._timers: list[tuple[float, int, _VirtualTimer]] = []
        self._order = itertools.count()
        self._settling: set[asyncio.Task[Any] | None] = set()
        self._given_up: WeakSet[asyncio.Future[Any]] = WeakSet()
        with suppress(RuntimeError):
            _work_in_threads(asyncio.get_running_loop())

    def now_s(self) -> float:
        return self._start_s + self._elapsed_s

    def time_s(self) -> float:
        return EPOCH_S + self._elapsed_s + self._wall_step_s

    def boot_id(self) -> str:
        return self._boot_id

    def chance(self) -> float:
        return self._chance

    def reboot(self) -> None:
        """Let `now_s` begin anew, below where it began before, as it does on a machine that was
        started again; `time_s` goes on, and so do timers that are set.
        """
        self._boot_id = new_id()
        self._start_s = START_S / 2 - self._elapsed_s

    def set_chance(self, chance: float) -> None:
        """Let every later `chance()` return this number."""
        self._chance = chance

    def call_later(self, delay_s: float, callback: Callable[[], object]) -> Timer:
        """Run `callback` in the `advance` that reaches it; without a delay, at the next turn."""
        if delay_s <= 0:
            return asyncio.get_running_loop().call_soon(callback)
        timer = _VirtualTimer(self._elapsed_s + delay_s, callback)
        heapq.heappush(self._timers, (timer.due_s, next(self._order), timer))
        return timer

    def next_due_in_s(self) -> float | None:
        """How long until the next timer, None when nothing waits for time to pass."""
        self._drop_cancelled()
        return self._timers[0][0] - self._elapsed_s if self._timers else None

    async def advance(self, seconds: float) -> None:
        """Let `seconds` pass: each timer fires at its moment, then every task runs to rest.

        The order of timers due at one moment is the order in which they were set.
        """
        if seconds < 0:
            raise ValueError(f"time does not run backwards: {seconds=}")
        end_s = self._elapsed_s + seconds
        await self.settle()
        while self._fire_next(end_s):
            await self.settle()
        self._elapsed_s = max(self._elapsed_s, end_s)

    def stand_still(self, seconds: float) -> None:
        """Let `seconds` pass as for a process that is stopped: no timer fires, and no task runs,
        before the next turn.
        """
        self._elapsed_s += seconds

    def step_wall_clock(self, seconds: float) -> None:
        """Set `time_s` forward, or back, as an operator or a time server does; `now_s` goes on."""
        self._wall_step_s += seconds

    async def advance_to_next(self) -> bool:
        """Move to the next timer and say whether there was one."""
        await self.settle()
        wait_s = self.next_due_in_s()
        if wait_s is None:
            return False
        await self.advance(wait_s)
        return True

    async def settle(self) -> None:
        """Return once every other task waits for something that only time, a socket or the
        caller can bring.

        Raises RuntimeError, naming the tasks, when they are still busy after `max_rounds`.
        """
        me = asyncio.current_task()
        _work_in_threads(asyncio.get_running_loop())
        self._settling.add(me)
        try:
            await self._run_to_rest()
        finally:
            self._settling.discard(me)

    async def _run_to_rest(self) -> None:
        patience_ends_s = SYSTEM_CLOCK.now_s() + self._thread_patience_s
        quiet_rounds = 0
        for _ in range(self._max_rounds):
            await yield_to_loop()
            if self._is_anything_runnable():
                quiet_rounds = 0
                continue
            quiet_rounds += 1
            if quiet_rounds < _enough_quiet_rounds():
                continue
            under_way = _work_in_threads(asyncio.get_running_loop())
            in_threads = under_way.difference(self._given_up)
            if not in_threads and not any(map(self._waits_for_a_thread, self._others())):
                if not await self._outwait_others():
                    return
                quiet_rounds = 0
                continue
            if SYSTEM_CLOCK.now_s() >= patience_ends_s:
                self._given_up.update(in_threads)
                return
            await SYSTEM_CLOCK.sleep(0.0002)
        busy = ", ".join(task.get_name() for task in self._others() if _is_runnable(task))
        raise RuntimeError(f"still busy after {self._max_rounds} rounds: {busy or 'callbacks'}")

    def _waits_for_a_thread(self, task: asyncio.Task[Any]) -> bool:
        return waits_for_a_thread(task)

    async def _outwait_others(self) -> bool:
        """Wait for work that neither the loop nor its executors show, and say whether there was
        any; for clocks of programs that work elsewhere too, such as behind a socket.
        """
        return False

    def _others(self) -> list[asyncio.Task[Any]]:
        return [task for task in asyncio.all_tasks() if task not in self._settling]

    def _is_anything_runnable(self) -> bool:
        # asyncio's own loops only; elsewhere looking at the tasks, for a few rounds, has to do.
        ready = getattr(asyncio.get_running_loop(), "_ready", None)
        if ready is not None and len(self._settling) == 1:
            # A task that can run is among the callbacks: no need to look at every task there is.
            return bool(ready)
        # The other tasks inside settle() are always ready, and wait for us as we for them.
        if ready is not None and len(ready) >= len(self._settling):
            return True
        return any(map(_is_runnable, self._others()))

    def _fire_next(self, end_s: float) -> bool:
        self._drop_cancelled()
        if not self._timers or self._timers[0][0] > end_s:
            return False
        moment_s = self._timers[0][0]
        self._elapsed_s = max(self._elapsed_s, moment_s)
        due = []
        while self._timers and self._timers[0][0] == moment_s:
            due.append(heapq.heappop(self._timers)[2])
        for timer in due:
            if not timer.is_cancelled:
                timer.callback()
        return True

    def _drop_cancelled(self) -> None:
        while self._timers and self._timers[0][2].is_cancelled:
            heapq.heappop(self._timers)


def _enough_quiet_rounds() -> int:
    """How often nothing must be seen to run: once where the loop shows its callbacks, else often
    enough for one callback to lead to another, and that one to a task.
    """
    return 1 if hasattr(asyncio.get_running_loop(), "_ready") else 8


def _work_in_threads(loop: asyncio.AbstractEventLoop) -> set[asyncio.Future[Any]]:
    """What the loop's executors were given since it was first asked, and have not finished,
    in whatever way it is waited for.
    """
    if loop not in _IN_THREADS:
        under_way: set[asyncio.Future[Any]] = set()
        run_in_executor: Callable[..., asyncio.Future[Any]] = loop.run_in_executor

        def noting(*args: Any) -> asyncio.Future[Any]:
            future = run_in_executor(*args)
            under_way.add(future)
            future.add_done_callback(under_way.discard)
            return future

        _IN_THREADS[loop] = under_way
        vars(loop)["run_in_executor"] = noting
    return _IN_THREADS[loop]


def _is_runnable(task: asyncio.Task[Any]) -> bool:
    waiter = getattr(task, "_fut_waiter", None)
    return waiter is None or waiter.done()


def waits_for_a_thread(task: asyncio.Task[Any], *, but_in: str = "") -> bool:
    """Whether what a task waits for is done in a thread, and not by that module."""
    waiter = getattr(task, "_fut_waiter", None)
    # asyncio ties a future to an executor's through this callback.
    for callback, _ in getattr(waiter, "_callbacks", None) or ():
        if getattr(callback, "__name__", "") == "_call_check_cancel":
            return not but_in or _innermost_module(task.get_coro()) != but_in
    return _innermost_module(task.get_coro()) in _THREADED_MODULES


def _innermost_module(awaited: Any) -> str:
    innermost = None
    while awaited is not None:
        kind: Any = type(awaited)
        if kind.__name__ in _OPAQUE:
            awaited = next(iter(gc.get_referents(awaited)), None)
            kind = type(awaited)
        names = _names_in(kind)
        if names is None:
            break
        innermost = getattr(awaited, names[0]) or innermost
        awaited = getattr(awaited, names[1], None)
    return innermost.f_globals.get("__name__", "") if innermost is not None else ""


@cache
def _names_in(kind: type) -> tuple[str, str] | None:
    """What its frame is called in such an awaitable, and what it awaits; None where it is a leaf.

    By name, not by type: compiled coroutines have types of their own.
    """
    for frame, inner in (
        ("cr_frame", "cr_await"),
        ("gi_frame", "gi_yieldfrom"),
        ("ag_frame", "ag_await"),
    ):
        if hasattr(kind, frame):
            return frame, inner
    return None
