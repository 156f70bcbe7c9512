"""Leases: what is in flight of one queue, and until when. Pure.

RabbitMQ knows no end of a delivery but that of its channel, so the end is kept here.

A lease whose end has passed is due: its message is handed back. All leases of a channel that
closes are lost with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from itertools import islice
from typing import TYPE_CHECKING

import attrs

from pump.message import Delivery

from .._kit.leases import Lease, WatchedLeases
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


class RabbitMQLease(Lease, eq=False, kw_only=True):
    """One delivery in flight."""

    delivery: Delivery
    parcel: Parcel
    channel: Channel
    outstanding: Outstanding
    """What is not settled on that channel."""
    tag: int
    terms: Terms
    received_at_s: float

    def is_over(self, now_s: float) -> bool:
        """With its channel it ends early."""
        return self.ends_at_s <= now_s or self.channel.is_closed

    @property
    def ceiling_s(self) -> float:
        """When no extension helps any more."""
        return self.received_at_s + self.terms.max_lease_s

    @property
    def is_last(self) -> bool:
        """Whether this delivery is the last that the message gets."""
        limit = self.terms.max_receive_count
        return limit is not None and self.delivery.attempt >= limit


class ChannelLeases(WatchedLeases[RabbitMQLease]):
    """The leases of one queue in this gateway."""

    def lose(self, channel: Channel) -> list[Delivery]:
        """A channel has closed, and the broker owns what was received through it: forget that, and
        return what no settlement was on its way for.
        """
        lost = [lease for lease in self if lease.channel is channel]
        for lease in lost:
            self.spend(lease.delivery.receipt)
        return [lease.delivery for lease in lost if not lease.is_taken]


# Which deliveries of one channel are not settled, so that many are acked in one word. Pure, but
# for the lock.
#
# AMQP can say "up to and with this one". That acks whatever is not settled below it, so a delivery
# must be known here from the moment it arrives. Tags are counted by the broker without gaps: one
# that was skipped is a delivery that was not reported here, and is never acked along with others.


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
