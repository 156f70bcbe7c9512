"""Upkeep: what queues notice by themselves, written down: burials and expiries."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from math import inf

from pump.clock import Clock

from ..model import QueueAddress
from .entries import Deleted
from .mover import Mover, Write
from .queue import Queue
from .record import Record

# An expiry whose write failed is tried again after this long.
_RETRY_S = 5.0


class Upkeep:
    """Every queue's caretaker."""

    def __init__(
        self,
        clock: Clock,
        find: Callable[[QueueAddress], Queue | None],
        mover: Mover,
        write: Write,
    ) -> None:
        self._clock = clock
        self._find = find
        self._mover = mover
        self._write = write
        self._burial: asyncio.Future[None] | None = None

    def dead_after(self, queue: Queue) -> float:
        """After how many deliveries a message is buried: never, when there is nowhere to."""
        redrive = queue.settings.redrive
        if redrive is None or self._find(redrive.target) is None:
            return inf
        return redrive.max_receive_count

    def bury(self, queue: Queue, records: Sequence[Record]) -> None:
        """Move what had its last delivery to the dead-letter queue."""
        redrive = queue.settings.redrive
        target = None if redrive is None else self._find(redrive.target)
        assert target is not None, "dead_after looked"
        self._burial = self._mover.bury(queue, target, records)

    async def wait_for_burials(self) -> None:
        """Return when all burials so far are written, or have failed."""
        if self._burial is not None:
            await asyncio.wait([self._burial])

    def expire(self, queue: Queue, records: Sequence[Record]) -> None:
        """Delete what is past its retention."""

        def finish(error: Exception | None) -> None:
            if error is None:
                queue.state.remove(records)
                queue.state.renew_expiry_hint(self._clock.time_s())
            else:
                queue.state.restore(records, now_s=self._clock.now_s())
                queue.state.expiry_hint_s = self._clock.time_s() + _RETRY_S
            queue.stir()

        self._write(Deleted(records), finish)
