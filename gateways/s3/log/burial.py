"""Burial: messages that had their last delivery go to the dead-letter queue, then out of this one.

In this order, so that a death in between makes a second copy at most; its de-duplication id is
the same, so that a target which knows duplicates keeps one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from functools import partial

from msgspec.structs import replace

from pump.errors import GatewayError, PumpError, StorageFailed
from pump.observability import vocabulary
from pump.observability.log import get_logger

from ..._engine.redrive import dead_letter
from ..layout import Surroundings
from .committer import Committer
from .entries import Buried
from .shelf import Shelf
from .state import BURIAL_S, stub

_AGAIN_S = 1.0
"""A burial that failed is tried again after this long, then later and later."""
_log = get_logger("gateways.s3")


class Undertaker:
    """Moves the dead that are ours to move, until each is moved or another's task."""

    def __init__(self, committer: Committer, surroundings: Surroundings, shelf: Shelf) -> None:
        self._committer = committer
        self._around = surroundings
        self._shelf = shelf
        self._burials: dict[int, asyncio.Task[None]] = {}
        self._tries: dict[int, asyncio.Event] = {}

    def attend(self) -> None:
        """Take care of those that have become ours."""
        follower = self._committer.follower
        for number in follower.replica.claimed_by(follower.writer):
            if number not in self._burials:
                self._tries[number] = asyncio.Event()
                task = asyncio.create_task(self._bury(number), name=f"burial of {number}")
                self._burials[number] = task
                task.add_done_callback(partial(self._forget, number))

    async def first_try(self, numbers: Iterable[int]) -> None:
        """Return when each of them was moved, or could not be at the first try."""
        for number in numbers:
            tried = self._tries.get(number)
            if tried is not None:
                await tried.wait()

    async def aclose(self) -> None:
        """Leave the rest to others."""
        burials = list(self._burials.values())
        for task in burials:
            task.cancel()
        await asyncio.gather(*burials, return_exceptions=True)

    def _forget(self, number: int, task: asyncio.Task[None]) -> None:
        self._burials.pop(number, None)
        self._tries.pop(number).set()

    async def _bury(self, number: int) -> None:
        pause_s, is_moved = _AGAIN_S, False
        while self._is_ours(number):
            try:
                if not is_moved:
                    await self._move(number)
                    is_moved = True
                await asyncio.shield(self._committer.submit(Buried((number,))))
                return
            except PumpError as error:
                # It stays where it is, out of reach, and is tried again.
                target = self._committer.follower.replica.settings.dead_letter_queue
                _log.warning(vocabulary.ROUTING_FAILED, queue=target, error=repr(error))
                self._tries[number].set()
                await self._around.clock.sleep(pause_s)
                pause_s = min(2 * pause_s, BURIAL_S)

    def _is_ours(self, number: int) -> bool:
        follower = self._committer.follower
        claim = follower.replica.dead.get(number)
        return claim is not None and claim.writer == follower.writer

    async def _move(self, number: int) -> None:
        replica = self._committer.follower.replica
        record, settings = replica.queue.records[number], replica.settings
        kept, attempt = stub(record), record.attempt
        message = await self._shelf.message(kept.segment, kept.place)
        if message is None:
            raise StorageFailed(kept.segment, "the segment of a message is gone")
        if settings.dead_letter_queue is None:
            raise GatewayError(f"queue {settings.name!r} has no dead-letter queue")
        copy = dead_letter(
            replace(message, deduplication_id=f"{kept.segment}/{kept.place}"),
            queue=settings.name,
            attempt=attempt,
            wall_s=self._around.clock.time_s(),
        )
        await self._around.send_to(settings.dead_letter_queue, copy)
