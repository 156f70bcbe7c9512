"""Server time: what the store's clock says, within bounds, whatever this machine's clock says.

Every reply carries a `Date` in whole seconds. A reply dated d, asked for at s and here at r, both
by the local clock, was dated between s and r, so the store is ahead of us by at least d - r and by
less than d + 1 - s. Each reply narrows the bounds, and time widens them again, because no clock
runs quite as fast as another. Leases are written by the later bound and judged by the earlier one,
so that nobody takes from an owner what the store's clock still grants it.
"""

from __future__ import annotations

from collections.abc import Callable

RESOLUTION_S = 1.0
"""A `Date` is cut to whole seconds."""
DRIFT = 0.001
"""How much faster or slower than the store's clock ours may run: twice what Linux slews a clock by
while it is being set (500 ppm), ten times what a quartz is off by."""


class ServerTime:
    """Bounds of the store's time. `local_s` must only ever grow (`Clock.now_s`).

    A clock that was set, or that stood still while the machine slept, is noticed at the next reply:
    it contradicts what was known, which is then void.
    """

    def __init__(self, local_s: Callable[[], float]) -> None:
        self._local_s = local_s
        self._least_s = float("-inf")
        self._most_s = float("inf")
        self._at_s = 0.0
        """The local time that the bounds of the store's lead are true for."""

    @property
    def is_known(self) -> bool:
        """Whether a reply has told it."""
        return self._least_s > float("-inf")

    def observe(self, date_s: float, *, sent_s: float, received_s: float) -> None:
        """Learn from a reply: its date, and the local times around it."""
        least_s = date_s - received_s
        most_s = date_s + RESOLUTION_S - sent_s + DRIFT * (received_s - sent_s)
        if not self.is_known:
            self._least_s, self._most_s, self._at_s = least_s, most_s, received_s
            return
        # Replies may be told of in another order than they came: an older one has widened since.
        at_s = max(self._at_s, received_s)
        since_s, widened_s = at_s - received_s, at_s - self._at_s
        least_s, most_s = least_s - DRIFT * since_s, most_s + DRIFT * since_s
        known_least_s = self._least_s - DRIFT * widened_s
        known_most_s = self._most_s + DRIFT * widened_s
        if least_s <= known_most_s and most_s >= known_least_s:
            least_s, most_s = max(least_s, known_least_s), min(most_s, known_most_s)
        self._least_s, self._most_s, self._at_s = least_s, most_s, at_s

    def earliest_s(self) -> float:
        """It is at least this late at the store; minus infinity before the first reply."""
        now_s = self._local_s()
        return now_s + self._least_s - DRIFT * (now_s - self._at_s)

    def latest_s(self) -> float:
        """It is at most this late at the store; infinity before the first reply."""
        now_s = self._local_s()
        return now_s + self._most_s + DRIFT * (now_s - self._at_s)

    def end_s(self, lease_s: float) -> float:
        """When a lease granted now is over at the store: not before our clock has counted it."""
        return self.latest_s() + lease_s * (1.0 + DRIFT)
