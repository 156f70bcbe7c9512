"""Workers: run started deliveries, up to `concurrency` at once.

A worker takes delivery after delivery; there is no task per message, so a handler that never
waits costs no turn of the event loop. Idle workers park, and are woken one at a time: each that
finds more to do wakes the next.

Handlers run in a worker's own task, so they can cancel it. The canceller decides what it means:

| cancelled by                                  | known by       | and then                      |
|-----------------------------------------------|----------------|-------------------------------|
| `recall`: the lease is lost, the drain is over| `is_recalled`  | ends with the delivery        |
| `stop`, or the task that runs the pool was    | `is_dismissed` | the worker ends (law 6)       |
| anything else: a handler's own doing          | neither        | undone; the worker goes on    |

A handler may swallow that and go on for ever. Python cannot end it, so after a while it is left
behind: nothing waits for it any more, and what it says in the end counts for nothing.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

from ..clock import SYSTEM_CLOCK, Clock, yield_to_loop
from ..message import Delivery
from .lanes import Lanes

PATIENCE_S = 5.0
"""How long a handler that was cancelled may take to end before it is left behind."""
_DELIVERIES_A_TURN = 64
"""Deliveries a worker handles before it lets the poller and the settler have a turn."""


class Workers:
    """A pool of tasks that run `work(delivery)` for whatever the lanes let start.

    `work` must not raise; it is cancelled by `recall`, and then told so by `is_recalled`.
    `on_idle` is called whenever a worker finds nothing to start. A worker that has ended is
    replaced when there is work.
    """

    def __init__(
        self,
        lanes: Lanes,
        work: Callable[[Delivery], Awaitable[None]],
        *,
        concurrency: int,
        on_idle: Callable[[], None] | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._lanes = lanes
        self._work = work
        self._on_idle = on_idle
        self._concurrency = concurrency
        self._clock = clock
        self._is_started = False
        self._owner: asyncio.Task[Any] | None = None
        self._owner_cancelling = 0
        self._is_stopped = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._parked: deque[asyncio.Future[None]] = deque()
        self._running: dict[Delivery, asyncio.Task[None]] = {}
        self._recalled: set[Delivery] = set()
        self._left: set[Delivery] = set()
        self._failures: list[BaseException] = []
        self._is_ending = asyncio.Event()
        self._is_one_waking = False
        self._is_awaited = False
        self._all_done = asyncio.Event()

    @property
    def running_count(self) -> int:
        """How many deliveries are being worked on."""
        return len(self._running)

    @property
    def is_dismissed(self) -> bool:
        """Whether the workers are to end: stopped, or the task that runs them was cancelled.

        A group cancels that task together with its members, whichever of them failed.
        """
        owner = self._owner
        return self._is_stopped or (
            owner is not None and owner.cancelling() > self._owner_cancelling
        )

    def start(self, group: asyncio.TaskGroup) -> asyncio.Task[None]:
        """Run workers from now on, until `stop` or the end of `group`, which is told of what they
        raise; called by the task that entered the group. Returns the task that sees them end.
        """
        self._is_started = True
        self._owner = asyncio.current_task()
        self._owner_cancelling = 0 if self._owner is None else self._owner.cancelling()
        return group.create_task(self._attend(), name="workers")

    def wake(self) -> None:
        """Have a worker look for work; one that was woken and has not looked yet is enough."""
        if self._is_one_waking:
            return
        while self._parked:
            parked = self._parked.popleft()
            if not parked.done():
                parked.set_result(None)
                self._is_one_waking = True
                return
        if not self._is_started or self.is_dismissed:
            return
        if len(self._tasks) < self._concurrency:
            # In no group: a group would wait for one that never ends.
            task = asyncio.create_task(self._run(), name="worker")
            task.add_done_callback(self._ended)
            self._tasks.add(task)
            self._is_one_waking = True

    def resize(self, concurrency: int) -> None:
        """Change how many run at once; running handlers finish first."""
        self._concurrency = concurrency
        # Every idle one looks up, so that those who are too many leave.
        for parked in self._parked:
            if not parked.done():
                parked.set_result(None)
        self._parked.clear()
        if self._lanes.ready:
            self.wake()

    def recall(self, delivery: Delivery) -> bool:
        """Cancel a running delivery; False when it is not running."""
        task = self._running.get(delivery)
        if task is None or delivery in self._recalled:
            return task is not None
        self._recalled.add(delivery)
        task.cancel()
        return True

    def recall_all(self) -> int:
        """Cancel everything that runs, and say how many that were."""
        running = list(self._running)
        for delivery in running:
            self.recall(delivery)
        return len(running)

    def stop(self) -> None:
        """Dismiss every worker; whatever still runs is cancelled from outside."""
        if not self._is_stopped:
            self._is_stopped = True
            for task in self._tasks:
                task.cancel()
        self._is_ending.set()

    def leave_behind(self) -> list[Delivery]:
        """Wait no longer for what runs, and return it: settling it is the caller's."""
        left = list(self._running)
        for delivery in left:
            self._left.add(delivery)
            self._tasks.discard(self._running.pop(delivery))
        self._all_done.set()
        return left

    def is_left_behind(self, delivery: Delivery) -> bool:
        """Whether this delivery was taken from the handler that still runs."""
        return delivery in self._left

    def is_recalled(self, delivery: Delivery) -> bool:
        """Whether `recall` cancelled this delivery."""
        return delivery in self._recalled

    def is_told_to_stop(self, delivery: Delivery) -> bool:
        """Whether a cancellation of this delivery's task was not its handler's own doing."""
        return delivery in self._recalled or self.is_dismissed

    async def wait_until_done(self) -> None:
        """Return when nothing runs."""
        self._is_awaited = True
        while self._running:
            self._all_done.clear()
            await self._all_done.wait()

    async def _attend(self) -> None:
        """See the workers end, and raise what they raised."""
        try:
            await self._is_ending.wait()
        finally:
            self.stop()
            await self._see_them_end()
        if len(self._failures) == 1:
            raise self._failures[0]
        if self._failures:
            raise BaseExceptionGroup("several workers failed", self._failures)

    async def _see_them_end(self) -> None:
        ends_at_s = self._clock.now_s() + PATIENCE_S
        is_cancelled = False
        while self._tasks:
            try:
                async with self._clock.timeout(ends_at_s - self._clock.now_s()):
                    ended, _ = await asyncio.wait(self._tasks)
                self._tasks -= ended
            except TimeoutError:
                self.leave_behind()
                self._tasks.clear()
            except asyncio.CancelledError:
                is_cancelled = True
        if is_cancelled:
            raise asyncio.CancelledError

    async def shed_strays(self) -> None:
        """Undo what a handler did to the task it ran in; a dismissal goes on, though the handler
        may have swallowed it.
        """
        if self.is_dismissed:
            raise asyncio.CancelledError
        task = _this_task()
        while task.cancelling():
            task.uncancel()
        try:
            # Before Python 3.13 one that was not thrown yet is still thrown at the next wait.
            await yield_to_loop()
        except asyncio.CancelledError:
            if self.is_dismissed:
                raise

    async def _run(self) -> None:
        task = _this_task()
        while len(self._tasks) <= self._concurrency:
            try:
                await self._take_turns(task)
            except asyncio.CancelledError:
                await self.shed_strays()
        # At once: two that end in one turn of the loop must not both take the other for enough.
        self._tasks.discard(task)

    async def _take_turns(self, task: asyncio.Task[None]) -> None:
        self._is_one_waking = False
        taken = 0
        while len(self._tasks) <= self._concurrency:
            delivery = self._lanes.take()
            if delivery is None:
                taken = 0
                if self._on_idle is not None:
                    self._on_idle()
                await self._park()
                continue
            if self._lanes.ready and not self._is_one_waking:
                self.wake()
            await self._run_one(delivery, task)
            taken += 1
            if taken % _DELIVERIES_A_TURN == 0:
                await yield_to_loop()

    async def _run_one(self, delivery: Delivery, task: asyncio.Task[None]) -> None:
        self._running[delivery] = task
        try:
            await self._work(delivery)
        finally:
            self._running.pop(delivery, None)
            if self._recalled:
                self._recalled.discard(delivery)
            if self._left:
                self._left.discard(delivery)
            if self._is_awaited and not self._running:
                self._all_done.set()
        if task.cancelling():
            # Ours, a handler's own, or one from outside that a handler swallowed.
            raise asyncio.CancelledError

    async def _park(self) -> None:
        parked: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._parked.append(parked)
        await parked
        self._is_one_waking = False

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._failures.append(error)
            self.stop()
        if not self.is_dismissed:
            self._is_one_waking = False
            if self._lanes.ready:
                self.wake()


def _this_task() -> asyncio.Task[None]:
    task = asyncio.current_task()
    assert task is not None
    return task
