"""Lanes: when a received message may start.

| the message           | may start                                                        |
|-----------------------|------------------------------------------------------------------|
| has no group, or one  | at once (with `single_lane`: after the one before it)            |
| that is not ordered   |                                                                  |
| is its group's first  | at once                                                          |
| has one before it     | when that one was acked or routed away                           |
| its predecessor was   | never here: it is handed back, and the broker delivers it after  |
| deferred or given up  | its predecessor                                                  |
| is its predecessor,   | when that one has ended: its lease was over, by the broker's     |
| delivered again       | clock, before we knew                                            |
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from ..message import Delivery

_WHOLE_QUEUE = ""


class Lanes:
    """Orders work within groups and leaves the rest parallel. Pure."""

    def __init__(self, *, single_lane: bool = False) -> None:
        self._single_lane = single_lane
        self.ready: deque[Delivery] = deque()
        """What could start now. Only looked at from outside, several times a message."""
        # A key stands here as long as a member of its group is ready or running.
        self._behind: dict[str, deque[Delivery]] = {}
        self._behind_count = 0

    @property
    def ready_count(self) -> int:
        """How many could start now."""
        return len(self.ready)

    @property
    def waiting_count(self) -> int:
        """How many have not started, startable or not."""
        return len(self.ready) + self._behind_count

    def add(self, delivery: Delivery) -> None:
        """Take a received message in."""
        if delivery.message.group is None and not self._single_lane:
            self.ready.append(delivery)
            return
        key = self._key(delivery)
        if key is None:
            self.ready.append(delivery)
        elif key in self._behind:
            self._behind[key].append(delivery)
            self._behind_count += 1
        else:
            self._behind[key] = deque()
            self.ready.append(delivery)

    def take(self) -> Delivery | None:
        """The next message to start, None when there is none."""
        return self.ready.popleft() if self.ready else None

    def finish(self, delivery: Delivery, *, is_gone: bool) -> Sequence[Delivery]:
        """A started message has ended; return those that must be handed back because of it.

        `is_gone` says that it will not come again, so that its successor may start. So may a
        successor that is the same message.
        """
        if delivery.message.group is None and not self._single_lane:
            return ()
        key = self._key(delivery)
        if key is None:
            return ()
        behind = self._behind[key]
        if not is_gone and not _is_next(delivery, behind):
            return self._close(key)
        if behind:
            self.ready.append(behind.popleft())
            self._behind_count -= 1
        else:
            del self._behind[key]
        return ()

    def drop(self, delivery: Delivery) -> Sequence[Delivery] | None:
        """Forget a message that did not start; return its successors, to be handed back.

        None when the message does not wait here.
        """
        key = self._key(delivery)
        if delivery in self.ready:
            self.ready.remove(delivery)
            return () if key is None else self._close(key)
        if key is None or delivery not in self._behind.get(key, ()):
            return None
        behind = self._behind[key]
        successors = []
        while behind[-1] is not delivery:
            successors.append(behind.pop())
        behind.pop()
        self._behind_count -= len(successors) + 1
        return successors[::-1]

    def clear(self) -> Sequence[Delivery]:
        """Forget everything that did not start, and return it, each group in order."""
        unstarted = list(self.ready)
        for behind in self._behind.values():
            unstarted.extend(behind)
            behind.clear()
        for delivery in self.ready:
            key = self._key(delivery)
            if key is not None:
                del self._behind[key]
        self.ready.clear()
        self._behind_count = 0
        return unstarted

    def _close(self, key: str) -> Sequence[Delivery]:
        behind = self._behind.pop(key)
        self._behind_count -= len(behind)
        return tuple(behind)

    def _key(self, delivery: Delivery) -> str | None:
        group = delivery.message.group if delivery.is_ordered else None
        if group is None and self._single_lane:
            return _WHOLE_QUEUE
        return group


def _is_next(delivery: Delivery, behind: deque[Delivery]) -> bool:
    """Whether the same message comes next, delivered again."""
    return bool(behind) and behind[0].message.id == delivery.message.id
