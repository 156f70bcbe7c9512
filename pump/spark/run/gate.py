"""Gate: how much a task may receive, and what it has in its hands. Shared by its consumers."""

from __future__ import annotations

from ...clock import Clock


class Gate:
    """Lets in so many messages in all, until it is closed; knows what has not come out again."""

    def __init__(self, quota: int, clock: Clock) -> None:
        self._left = quota
        self._clock = clock
        self._is_closed = False
        self.open_receives = 0
        """Receives under way, which may bring messages yet."""
        self.in_hand = 0
        """Messages received and neither settled nor lost."""
        self.moved_at_s = clock.now_s()
        """When a message last came or went."""
        self.empty_looks = 0
        """Receives since then that came back without a message."""

    @property
    def is_spent(self) -> bool:
        """Whether nobody is let in: the quota is received or asked for, or the gate is closed."""
        return self._is_closed or self._left <= 0

    @property
    def is_full(self) -> bool:
        """Whether the whole quota has been received."""
        return self._left <= 0 and not self.open_receives

    @property
    def is_still(self) -> bool:
        """Whether nothing is in hand, and nothing can come before somebody asks."""
        return not self.in_hand and not self.open_receives

    def close(self) -> None:
        """Let nobody in any more."""
        self._is_closed = True

    def take(self, count: int) -> int:
        """Reserve up to `count` of the quota."""
        taken = 0 if self._is_closed else max(0, min(count, self._left))
        self._left -= taken
        if taken:
            self.open_receives += 1
        return taken

    def received(self, count: int, *, reserved: int) -> None:
        """A receive came back with so many of those reserved."""
        self.open_receives -= 1
        self._left += reserved - count
        if count:
            self.in_hand += count
            self._moved()
        else:
            self.empty_looks += 1

    def gone(self, count: int) -> None:
        """So many were settled, or lost."""
        self.in_hand -= count
        self._moved()

    def _moved(self) -> None:
        self.moved_at_s = self._clock.now_s()
        self.empty_looks = 0
