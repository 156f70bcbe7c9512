"""Workers: run started deliveries, up to `concurrency` at once.

A worker takes delivery after delivery; there is no task per message, so a handler that never
waits costs no turn of the event loop. Idle workers park, and are woken one at a time: each that
finds more to do wakes the next.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable

from ..clock import breathe
from ..message import Delivery
from .lanes import Lanes

_BREATH = 64
"""Deliveries a worker handles before it lets the poller and the settler have a turn."""


class Workers:
    """A pool of tasks that run `work(delivery)` for whatever the lanes let start.

    `work` must not raise; it is cancelled by `recall`, and then told so by `is_recalled`.
    `on_idle` is called whenever a worker finds nothing to start.
    """

    def __init__(
        self,
        lanes: Lanes,
        work: Callable[[Delivery], Awaitable[None]],
        *,
        concurrency: int,
        on_idle: Callable[[], None] | None = None,
    ) -> None:
        self._lanes = lanes
        self._work = work
        self._on_idle = on_idle
        self._concurrency = concurrency
        self._group: asyncio.TaskGroup | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._parked: deque[asyncio.Future[None]] = deque()
        self._running: dict[Delivery, asyncio.Task[None]] = {}
        self._recalled: set[Delivery] = set()
        self._is_one_waking = False
        self._all_done = asyncio.Event()

    @property
    def running_count(self) -> int:
        """How many deliveries are being worked on."""
        return len(self._running)

    def start(self, group: asyncio.TaskGroup) -> None:
        """Run workers in `group` from now on."""
        self._group = group

    def wake(self) -> None:
        """Have somebody look for work; one who was woken and has not looked yet is enough."""
        if self._is_one_waking:
            return
        while self._parked:
            parked = self._parked.popleft()
            if not parked.done():
                parked.set_result(None)
                self._is_one_waking = True
                return
        if len(self._tasks) < self._concurrency and self._group is not None:
            self._tasks.add(self._group.create_task(self._run(), name="worker"))
            self._is_one_waking = True

    def resize(self, concurrency: int) -> None:
        """Change how many run at once; running handlers finish first."""
        self._concurrency = concurrency
        # Every idle one looks up, so that those who are too many leave.
        for parked in self._parked:
            if not parked.done():
                parked.set_result(None)
        self._parked.clear()
        if self._lanes.ready_count:
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
        for task in self._tasks:
            task.cancel()
        self._tasks.clear()

    def is_recalled(self, delivery: Delivery) -> bool:
        """Whether `recall` cancelled this delivery."""
        return delivery in self._recalled

    async def wait_until_done(self) -> None:
        """Return when nothing runs."""
        while self._running:
            self._all_done.clear()
            await self._all_done.wait()

    async def _run(self) -> None:
        task = asyncio.current_task()
        assert task is not None
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
            if self._lanes.ready_count:
                self.wake()
            await self._run_one(delivery, task)
            taken += 1
            if taken % _BREATH == 0:
                await breathe()
        self._tasks.discard(task)
        if self._lanes.ready_count:
            self.wake()

    async def _run_one(self, delivery: Delivery, task: asyncio.Task[None]) -> None:
        self._running[delivery] = task
        try:
            await self._work(delivery)
        finally:
            del self._running[delivery]
            if delivery in self._recalled:
                # Our own cancellation ends here; one from outside goes on.
                self._recalled.discard(delivery)
                outside_count = task.uncancel()
            else:
                # A handler may have swallowed it; the worker must not.
                outside_count = task.cancelling()
            if not self._running:
                self._all_done.set()
            if outside_count:
                raise asyncio.CancelledError

    async def _park(self) -> None:
        parked: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._parked.append(parked)
        await parked
        self._is_one_waking = False
