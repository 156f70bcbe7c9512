"""Limit: when so many messages were unacceptable that the fault is more likely ours. Pure."""

from __future__ import annotations

from collections import deque

from ..subscription import UnacceptableLimit


class UnacceptableCount:
    """Counts unacceptable messages in a sliding window."""

    def __init__(self, limit: UnacceptableLimit | None) -> None:
        self._limit = limit
        self._times_s: deque[float] = deque()

    def is_reached(self, now_s: float) -> bool:
        """Count one more at `now_s`, and say whether that is too many."""
        if self._limit is None:
            return False
        self._times_s.append(now_s)
        oldest_s = now_s - self._limit.window.total_seconds()
        while self._times_s[0] <= oldest_s:
            self._times_s.popleft()
        return len(self._times_s) >= self._limit.count
