"""De-duplication: which messages were sent within the last five minutes."""

from __future__ import annotations

from collections import OrderedDict, deque
from math import inf

from .record import IN_FLIGHT, TakenBatch, TimedHold

WINDOW_S = 300.0
"""SQS's fixed interval."""
SCOPE_CHANGE_S = 60.0
"""AWS allows itself a minute for a change of attributes, and was recorded to take it here."""


class KeyWindow:
    """Remembers keys with the number of their message; forgets when told the time.

    A key is a de-duplication id, or with a scope of message groups the id within its group.
    Both are looked up whatever the scope: an id keeps the scope it was sent with.
    """

    def __init__(self) -> None:
        self._seen: dict[str, int] = {}
        self._order: deque[tuple[float, list[tuple[str, int]]]] = deque()
        self._forgotten: list[str] = []

    def find(self, *keys: str) -> int | None:
        """The number of the message that was sent with one of the keys."""
        for key in keys:
            if (found := self._seen.get(key)) is not None:
                return found
        return None

    def remember(self, key: str, seq: int) -> None:
        """Refuse the key, until it is told how long with `keep`."""
        self._seen[key] = seq

    def keep(self, keys: list[tuple[str, int]], until_s: float) -> None:
        """Refuse keys, each with the number of its message, until then."""
        self._order.append((until_s, keys))

    def withdraw(self, key: str, seq: int) -> None:
        """Forget a key whose message was not accepted in the end."""
        if self._seen.get(key) == seq:
            del self._seen[key]

    def clear(self, below: int) -> None:
        """Forget the keys of all messages whose number is below this one."""
        self._seen = {key: seq for key, seq in self._seen.items() if seq >= below}
        self._order = deque(
            (until_s, later)
            for until_s, keys in self._order
            if (later := [each for each in keys if each[1] >= below])
        )
        self._forgotten.clear()

    def items(self) -> dict[str, int]:
        """Every key with the number of its message."""
        return dict(self._seen)

    def forget(self, now_s: float) -> None:
        """Forget the keys whose time is over."""
        order = self._order
        while order and order[0][0] <= now_s:
            for key, seq in order.popleft()[1]:
                # A withdrawn key may have been sent again, with another number.
                if self._seen.get(key) == seq:
                    del self._seen[key]
                    self._forgotten.append(key)

    def take_forgotten(self) -> list[str]:
        """The keys forgotten since the last call, for the store."""
        forgotten, self._forgotten = self._forgotten, []
        return forgotten


class DeduplicationScope:
    """Whether ids count within their group or in the whole queue; a change has its time.

    That time is not stored: a server that is started again follows the change at once, and
    the ids from before keep the scope they were sent with.
    """

    def __init__(self, is_group: bool) -> None:
        self._is_group = is_group
        self._since_s = -inf

    def is_group_at(self, now_s: float) -> bool:
        """Whether an id that is sent now counts within its group."""
        return self._is_group if now_s >= self._since_s else not self._is_group

    def change(self, is_group: bool, now_s: float) -> None:
        """Let this be so in a minute, unless it is so now."""
        is_change = is_group != self.is_group_at(now_s)
        self._since_s = now_s + SCOPE_CHANGE_S if is_change else -inf
        self._is_group = is_group


def key_in_queue(deduplication_id: str) -> str:
    """The key of an id that is unique in its queue."""
    return f"q{deduplication_id}"


def key_in_group(group: str, deduplication_id: str) -> str:
    """The key of an id that is unique in its group; group ids contain no such character."""
    return f"g{group}\n{deduplication_id}"


# Receive attempts: asking a FIFO queue again, after a lost answer, gives the same answer.


class Attempts:
    """What receives with an attempt id took, for five minutes.

    An answer is repeated only while nothing has happened to it: no message deleted, none
    visible again, no visibility changed. When one of these has happened to all of its messages
    it is dropped, for they may be large.
    """

    def __init__(self) -> None:
        self._given: OrderedDict[str, tuple[float, TakenBatch]] = OrderedDict()
        """Until when, and what; oldest first."""
        self._ids: dict[TimedHold, str] = {}

    def __len__(self) -> int:
        return len(self._given)

    def find(self, attempt_id: str, now_s: float) -> TakenBatch | None:
        """The answer to repeat."""
        given = self._given
        while given and given[next(iter(given))][0] <= now_s:
            _, (_, taken) = given.popitem(last=False)
            del self._ids[taken.hold]
        if attempt_id not in given:
            return None
        _, taken = given[attempt_id]
        return taken if _is_untouched(taken) else None

    def remember(self, attempt_id: str, taken: TakenBatch, now_s: float) -> None:
        """Keep an answer."""
        before = self._given.pop(attempt_id, None)
        if before is not None:
            del self._ids[before[1].hold]
        self._given[attempt_id] = now_s + WINDOW_S, taken
        self._ids[taken.hold] = attempt_id

    def replace(self, before: TakenBatch, taken: TakenBatch) -> None:
        """Keep an answer that repeats another, and only for as long as that."""
        attempt_id = self._ids.pop(before.hold)
        self._given[attempt_id] = self._given[attempt_id][0], taken
        self._ids[taken.hold] = attempt_id

    def drop(self, hold: TimedHold) -> None:
        """Forget the answer whose messages were under this hold, if there is one."""
        attempt_id = self._ids.pop(hold, None)
        if attempt_id is not None:
            del self._given[attempt_id]

    def clear(self) -> None:
        """Forget everything."""
        self._given.clear()
        self._ids.clear()


def _is_untouched(taken: TakenBatch) -> bool:
    hold = taken.hold
    return all(r.phase == IN_FLIGHT and r.hold is hold for r in taken.records)
