"""Which deliveries of one channel are not settled, so that many are acked in one word. Pure, but
for the lock.

AMQP can say "up to and with this one". That acks whatever is not settled below it, so a delivery
must be known here from the moment it arrives. Tags are counted by the broker without gaps: one that
was skipped is a delivery that nobody was told of, and is never acked along with others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from itertools import islice

import attrs


@attrs.frozen
class Acks:
    """What to tell of deliveries that are done."""

    up_to: int | None
    """All that are not settled, up to and with this one."""
    singly: tuple[int, ...]


class Outstanding:
    """The delivery tags of one channel, from their arrival to their settlement."""

    def __init__(self) -> None:
        self._tags: dict[int, None] = {}
        """In the order of their numbers."""
        self._last = 0
        self.telling = asyncio.Lock()
        """Held until what was decided here is on its way: said too early, "up to this one" would
        ack what was decided otherwise before."""

    def __len__(self) -> int:
        return len(self._tags)

    def add(self, tag: int) -> None:
        """One has arrived."""
        self._tags.update(dict.fromkeys(range(self._last + 1, tag + 1)))
        self._last = max(self._last, tag)

    def settle(self, done: Iterable[int], undone: Iterable[int]) -> Acks:
        """How to ack those that are done. The undone are to be told before that."""
        for tag in undone:
            self._tags.pop(tag, None)
        left = dict.fromkeys(done)
        up_to = None
        for tag in list(islice(self._tags, len(left))):
            if tag not in left:
                break
            up_to = tag
            del left[tag], self._tags[tag]
        for tag in left:
            self._tags.pop(tag, None)
        return Acks(up_to, tuple(left))
