"""Leases: what is held of one queue, and until when. Pure.

RabbitMQ knows no end of a delivery but that of its channel, so the end is kept here.

| a lease is | when                                      | and then                               |
|------------|-------------------------------------------|----------------------------------------|
| held       | received, its end ahead, its channel open | it may be settled or extended          |
| taken      | a settlement of it is on its way          | it may be extended, and nothing else   |
| held again | the broker was not told after all         |                                        |
| due        | its end has passed                        | the message is handed back             |
| gone       | settled, handed back, or its channel died | every later use of it is refused       |
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING

import attrs

from pump.message import Delivery

from .wire import Parcel

if TYPE_CHECKING:
    from .amqp import Channel


@attrs.frozen(kw_only=True)
class Terms:
    """What a subscription says about the leases of its queue."""

    lease_s: float
    max_lease_s: float
    max_receive_count: int | None = None
    dead_letter_queue: str | None = None


@attrs.define(eq=False)
class Lease:
    """One delivery in hand."""

    delivery: Delivery
    parcel: Parcel
    channel: Channel
    outstanding: Outstanding
    """What is not settled on that channel."""
    tag: int
    terms: Terms
    received_at_s: float
    ends_at_s: float
    is_taken: bool = False

    @property
    def ceiling_s(self) -> float:
        """When no extension helps any more."""
        return self.received_at_s + self.terms.max_lease_s

    @property
    def is_last(self) -> bool:
        """Whether this delivery is the last that the message gets."""
        limit = self.terms.max_receive_count
        return limit is not None and self.delivery.attempt >= limit


class Leases:
    """The leases of one queue in this gateway, whichever consumer received them."""

    def __init__(self) -> None:
        self._held: dict[str, Lease] = {}
        self._ends: list[tuple[float, str]] = []

    def __len__(self) -> int:
        return len(self._held)

    def __contains__(self, receipt: str) -> bool:
        return receipt in self._held

    def __iter__(self) -> Iterator[Lease]:
        return iter(list(self._held.values()))

    def hold(self, lease: Lease) -> None:
        """Enter what was received."""
        self._held[lease.delivery.receipt] = lease
        heapq.heappush(self._ends, (lease.ends_at_s, lease.delivery.receipt))

    def find(self, receipt: str, now_s: float) -> Lease | None:
        """The lease of a receipt that is ours, as far as we know; it may be taken."""
        lease = self._held.get(receipt)
        if lease is None or lease.ends_at_s <= now_s or lease.channel.is_closed:
            return None
        return lease

    def take(self, receipt: str, now_s: float) -> Lease | None:
        """The lease, taken for a settlement; None when it is not to be had."""
        lease = self.find(receipt, now_s)
        if lease is None or lease.is_taken:
            return None
        lease.is_taken = True
        return lease

    def give_back(self, lease: Lease) -> None:
        """The settlement did not come about: it may be tried again."""
        lease.is_taken = False
        heapq.heappush(self._ends, (lease.ends_at_s, lease.delivery.receipt))

    def lose(self, channel: Channel) -> list[Delivery]:
        """A channel has closed, and the broker owns what was received through it: forget that, and
        return what no settlement was on its way for.
        """
        lost = [lease for lease in self if lease.channel is channel]
        for lease in lost:
            self.spend(lease)
        return [lease.delivery for lease in lost if not lease.is_taken]

    def spend(self, lease: Lease) -> None:
        """The message is settled, or no longer ours."""
        self._held.pop(lease.delivery.receipt, None)

    def extend(self, lease: Lease, ends_at_s: float) -> None:
        """Move its end."""
        lease.ends_at_s = ends_at_s
        heapq.heappush(self._ends, (ends_at_s, lease.delivery.receipt))

    def next_end_s(self) -> float | None:
        """When the next lease may run out, None while there is none."""
        while self._ends:
            end_s, receipt = self._ends[0]
            lease = self._held.get(receipt)
            if lease is not None and not lease.is_taken and lease.ends_at_s == end_s:
                return end_s
            heapq.heappop(self._ends)
        return None

    def take_due(self, now_s: float) -> list[Lease]:
        """The leases that have run out, taken: they are handed back now."""
        due: list[Lease] = []
        while (end_s := self.next_end_s()) is not None and end_s <= now_s:
            _, receipt = heapq.heappop(self._ends)
            lease = self._held[receipt]
            lease.is_taken = True
            due.append(lease)
        return due


# Which deliveries of one channel are not settled, so that many are acked in one word. Pure, but
# for the lock.
#
# AMQP can say "up to and with this one". That acks whatever is not settled below it, so a delivery
# must be known here from the moment it arrives. Tags are counted by the broker without gaps: one
# that was skipped is a delivery that nobody was told of, and is never acked along with others.


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
