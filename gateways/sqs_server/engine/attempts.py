"""Receive attempts: asking a FIFO queue again, after a lost answer, gives the same answer."""

from __future__ import annotations

from collections import OrderedDict

from .record import IN_FLIGHT, Hold
from .steps import Taken

WINDOW_S = 300.0
"""SQS's fixed interval."""


class Attempts:
    """What receives with an attempt id took, for five minutes.

    An answer is repeated only while nothing has happened to it: no message deleted, none
    visible again, no visibility changed. When one of these has happened to all of its messages
    it is dropped, for they may be large.
    """

    def __init__(self) -> None:
        self._given: OrderedDict[str, tuple[float, Taken]] = OrderedDict()
        """Until when, and what; oldest first."""
        self._ids: dict[Hold, str] = {}

    def __len__(self) -> int:
        return len(self._given)

    def find(self, attempt_id: str, now_s: float) -> Taken | None:
        """The answer to repeat."""
        given = self._given
        while given and given[next(iter(given))][0] <= now_s:
            _, (_, taken) = given.popitem(last=False)
            del self._ids[taken.hold]
        if attempt_id not in given:
            return None
        _, taken = given[attempt_id]
        return taken if _is_untouched(taken) else None

    def remember(self, attempt_id: str, taken: Taken, now_s: float) -> None:
        """Keep an answer."""
        before = self._given.pop(attempt_id, None)
        if before is not None:
            del self._ids[before[1].hold]
        self._given[attempt_id] = now_s + WINDOW_S, taken
        self._ids[taken.hold] = attempt_id

    def replace(self, before: Taken, taken: Taken) -> None:
        """Keep an answer that repeats another, and only for as long as that."""
        attempt_id = self._ids.pop(before.hold)
        self._given[attempt_id] = self._given[attempt_id][0], taken
        self._ids[taken.hold] = attempt_id

    def drop(self, hold: Hold) -> None:
        """Forget the answer whose messages were under this hold, if there is one."""
        attempt_id = self._ids.pop(hold, None)
        if attempt_id is not None:
            del self._given[attempt_id]

    def clear(self) -> None:
        """Forget everything."""
        self._given.clear()
        self._ids.clear()


def _is_untouched(taken: Taken) -> bool:
    hold = taken.hold
    return all(r.phase == IN_FLIGHT and r.hold is hold for r in taken.records)
