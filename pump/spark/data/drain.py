"""Drain: when a query that is to read what is there, and no more, is done. Pure.

A queue does not say which messages were there at a moment, and may only estimate how many. So as
many are read as there were, then those that the estimate missed, as long as each round has at most
half of the one before: senders as fast as the reader cannot keep the query alive.

| it is done | when                                                              |
|------------|-------------------------------------------------------------------|
| empty      | two looks in a row, each a long poll, found nothing               |
| enough     | a round is read, and more than half as much is there again        |
"""

from __future__ import annotations

import attrs

_EMPTY_LOOKS = 2


@attrs.define
class Drain:
    """How much is still to be read; a depth of None stands for as much as comes."""

    depth: int | None
    least: int
    """A round is not smaller than this: one receive may bring as much."""
    is_done: bool = False
    _left: int | None = attrs.field(init=False)
    _empty_count: int = attrs.field(init=False, default=0)

    def __attrs_post_init__(self) -> None:
        self._left = None if self.depth is None else max(self.depth, self.least)

    def most(self, limit: int) -> int:
        """How many to ask for."""
        return limit if self._left is None else min(limit, self._left)

    @property
    def is_round_over(self) -> bool:
        """Whether the queue's depth must be known to go on."""
        return self._left is not None and self._left <= 0

    def looked(self, found_count: int, *, is_empty: bool) -> None:
        """Note what a look found, and whether it ended because nothing more came."""
        if self._left is not None:
            self._left -= found_count
        if found_count:
            self._empty_count = 0
        if is_empty:
            self._empty_count += 1
        self.is_done = self.is_done or self._empty_count >= _EMPTY_LOOKS

    def next_round(self, depth: int | None) -> None:
        """Note how much is there after a round."""
        if self.depth is None or depth is None or depth * 2 > self.depth:
            self.is_done = True
            return
        self.depth, self._left = depth, max(depth, self.least)
