"""Slice watch: sees when a task has done its part, and that it ends without costing an attempt.

Where every delivery counts, as on SQS, a message that is handed back untried has lost an attempt.
So only a stop hands back. At the end of a slice the gate is closed, the receives under way come
back, and what they bring is handled too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection

from ...clock import Clock
from ...errors import GatewayError
from ...ports import AdminPort
from .gate import Gate
from .run_folder import RunFolder
from .slicing import Depth
from .summary import TaskEnd
from .task_end import GRACE_S, QUIET_S, TaskState, task_end

_LOOK_S = 0.05
_MARKER_EVERY_S = 0.5
_ASK_EVERY_S = 0.5


class SliceWatch:
    """Watches one task."""

    def __init__(
        self, gate: Gate, folder: RunFolder, clock: Clock, *, time_s: float, queues: Collection[str]
    ) -> None:
        self._gate = gate
        self._folder = folder
        self._clock = clock
        self._ends_s = clock.now_s() + time_s
        self._queues = sorted(set(queues))
        self._is_stop_asked = False
        self._marker_seen_s = float("-inf")
        self._asked_s = float("-inf")
        self._depth: Depth | None = None

    async def wait(self, admin: AdminPort) -> TaskEnd:
        """Return, with the reason, once the task is to drain."""
        while (end := task_end(await self._state(admin))) is None:
            await self._clock.sleep(_LOOK_S)
        self._gate.close()
        if end is not TaskEnd.STOPPED and not self._is_all_gone:
            await self._finish()
        return end

    @property
    def _is_all_gone(self) -> bool:
        """Whether the queues are empty, so that no receive under way can bring anything."""
        is_empty = self._depth is not None and not self._depth.total
        return is_empty and not self._gate.in_hand

    async def _finish(self) -> None:
        """Let come what was asked for, and have it handled; a stop cuts it short."""
        until_s = self._clock.now_s() + GRACE_S
        while not self._gate.is_still and self._clock.now_s() < until_s:
            await self._look_for_marker()
            if self._is_stop_asked:
                return
            await self._clock.sleep(_LOOK_S)

    async def _state(self, admin: AdminPort) -> TaskState:
        await self._look_for_marker()
        self._depth = await self._asked(admin)
        now_s = self._clock.now_s()
        return TaskState(
            is_stop_asked=self._is_stop_asked,
            has_quota=not self._gate.is_full,
            has_time=now_s < self._ends_s,
            in_hand=self._gate.in_hand,
            quiet_s=now_s - self._gate.moved_at_s,
            empty_looks=self._gate.empty_looks,
            ready=None if self._depth is None else self._depth.ready,
            in_flight=0 if self._depth is None else self._depth.in_flight,
        )

    async def _look_for_marker(self) -> None:
        now_s = self._clock.now_s()
        if now_s - self._marker_seen_s >= _MARKER_EVERY_S:
            # In a thread: a network's file system may take its time.
            self._is_stop_asked = await asyncio.to_thread(lambda: self._folder.is_stop_asked)
            self._marker_seen_s = now_s

    async def _asked(self, admin: AdminPort) -> Depth | None:
        """What is in the queues, asked now and then while nothing moves; None when not known."""
        now_s = self._clock.now_s()
        is_quiet = not self._gate.in_hand and now_s - self._gate.moved_at_s >= QUIET_S
        if not is_quiet or now_s - self._asked_s < _ASK_EVERY_S:
            return None
        self._asked_s = now_s
        try:
            return Depth.of([await admin.stats(queue) for queue in self._queues])
        except GatewayError:
            return None  # Who cannot be asked may have messages.
