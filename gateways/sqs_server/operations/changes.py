"""Changing a queue's settings, one change after the other."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

import attrs

from ..settings import QueueSettings
from .lookup import find_queue

if TYPE_CHECKING:
    from ..engine import Engine
    from ..protocol import Call


@attrs.frozen(eq=False)
class Changes:
    """Where settings are changed.

    A change is made from what the queue is set to now, and takes effect once it is on disk; so
    that two at the same time (a tag and a permission) do not undo each other, they queue up here.
    """

    engine: Engine
    lock: asyncio.Lock = attrs.field(factory=asyncio.Lock, init=False)

    async def change(self, call: Call, decide: Callable[[QueueSettings], QueueSettings]) -> None:
        """Set the queue that the call names to what `decide` makes of its settings."""
        async with self.lock:
            queue = find_queue(self.engine, call)
            await self.engine.configure(queue, decide(queue.settings))
