"""Leases: the book of what is held and until when. Pure; `keeper.py` acts on it.

| a lease is  | when                                        | and then                     |
|-------------|---------------------------------------------|------------------------------|
| held        | from receipt                                |                              |
| due         | half of it is over and it may be extended   | the keeper extends it        |
| expired     | its end has passed                          | lost: the handler is told    |
| forgotten   | its message was settled                     |                              |
"""

from __future__ import annotations

from collections.abc import Iterable

from ..message import Delivery


class LeaseBook:
    """Every lease in hand. Ends come in rising order, so the first entry is the most urgent."""

    def __init__(self, *, lease_s: float, renew: bool, max_lease_s: float | None) -> None:
        self._lease_s = lease_s
        self._renew = renew
        self._max_lease_s = max_lease_s
        self._ends: dict[Delivery, float] = {}
        self._last_end_s = 0.0
        self._is_sorted = True

    def __len__(self) -> int:
        return len(self._ends)

    def __contains__(self, delivery: Delivery) -> bool:
        return delivery in self._ends

    def held(self) -> list[Delivery]:
        """Everything in the book."""
        return list(self._ends)

    def watch(self, deliveries: Iterable[Delivery]) -> None:
        """Enter received messages."""
        for delivery in deliveries:
            self._enter(delivery, delivery.lease_expires_at_s)

    def forget(self, delivery: Delivery) -> bool:
        """Strike a message out; False when it was not held any more."""
        return self._ends.pop(delivery, None) is not None

    def is_fresh(self, delivery: Delivery, now_s: float) -> bool:
        """Whether the broker granted it within the last tenth of a lease: it need not be asked."""
        return self._ends.get(delivery, 0.0) - now_s >= self._lease_s * 0.9

    def extended(self, delivery: Delivery, now_s: float) -> None:
        """Note that the broker granted a whole lease from `now_s`."""
        if delivery in self._ends:
            del self._ends[delivery]
            self._enter(delivery, now_s + self._lease_s)

    def due(self, now_s: float) -> list[Delivery]:
        """Those to extend now, with those that would be due within a tenth of a lease:
        one request for all of them is cheaper than a trickle.
        """
        horizon_s = now_s + self._lease_s * 0.1
        return [
            delivery
            for delivery in self._first_until(self._due_end_s(horizon_s))
            if self._may_extend(delivery, now_s)
        ]

    def expired(self, now_s: float) -> list[Delivery]:
        """Those whose end has passed."""
        return self._first_until(now_s)

    def is_over(self, delivery: Delivery, now_s: float) -> bool:
        """Whether its end has passed, or it is not held at all."""
        end_s = self._ends.get(delivery)
        return end_s is None or end_s <= now_s

    def wake_at_s(self, now_s: float) -> float | None:
        """When to look again, None when nothing is held."""
        self._sort()
        wake_s: float | None = None
        for delivery, end_s in self._ends.items():
            wake_s = end_s if wake_s is None else wake_s
            if self._may_extend(delivery, now_s):
                return min(wake_s, end_s - self._lease_s / 2)
            if not self._renew:
                break
        return wake_s

    def _enter(self, delivery: Delivery, end_s: float) -> None:
        if end_s < self._last_end_s:
            self._is_sorted = False
        self._last_end_s = end_s
        self._ends[delivery] = end_s

    def _first_until(self, end_s: float) -> list[Delivery]:
        self._sort()
        found = []
        for delivery, ends_s in self._ends.items():
            if ends_s > end_s:
                break
            found.append(delivery)
        return found

    def _sort(self) -> None:
        if not self._is_sorted:
            self._ends = dict(sorted(self._ends.items(), key=lambda entry: entry[1]))
            self._last_end_s = next(reversed(self._ends.values()), 0.0)
            self._is_sorted = True

    def _due_end_s(self, now_s: float) -> float:
        return now_s + self._lease_s / 2

    def _may_extend(self, delivery: Delivery, now_s: float) -> bool:
        if not self._renew:
            return False
        if self._max_lease_s is None:
            return True
        received_at_s = delivery.lease_expires_at_s - self._lease_s
        return now_s + self._lease_s <= received_at_s + self._max_lease_s
