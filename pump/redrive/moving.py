"""Moving: one consumer of the dead-letter queue, that sends what is selected.

| a dead letter is          | it is                                                    |
|---------------------------|----------------------------------------------------------|
| recorded as sent          | removed                                                  |
| selected                  | sent, recorded, removed                                  |
| neither                   | held, so that it does not come again; handed back at the end |
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from enum import Enum, auto
from pathlib import Path

import attrs

from ..clock import SYSTEM_CLOCK, Clock
from ..errors import GatewayError, UnsupportedOperation
from ..message import Delivery
from ..ports import Gateway
from .chosen import Chosen
from .counts import Counts
from .ending import Silence, is_over
from .hand import Hand
from .identity import entry_of, is_among
from .pace import Pace
from .record import Known, Record
from .rows import LedgerRows
from .sender import Sender


class Fate(Enum):
    """What is to be done with a dead letter."""

    REMOVE = auto()
    SEND = auto()
    HOLD = auto()


def fate_of(*, is_sent: bool, is_selected: bool) -> Fate:
    """Decide. What was sent is never sent again, also when it is not selected this time."""
    if is_sent:
        return Fate.REMOVE
    return Fate.SEND if is_selected else Fate.HOLD


@attrs.frozen(kw_only=True)
class Task:
    """What one consumer is to do. Survives the way to another process."""

    queue: str
    target: str
    folder: Path
    """The run's own folder."""
    lease_s: float
    count: int
    """Dead letters that were selected."""
    sent_before: Mapping[str, float | None] = attrs.field(factory=dict)
    """Entries that other runs have sent and not removed, with the moments they recorded."""
    is_resumed: bool = False
    rate: float | None = None
    """Messages a second."""
    batch: int = 100
    """The most that is sent between two records, and so the most that a crash can repeat."""


class Mover:
    """Moves until nothing is left, or it is told to stop. `counts` tells how far it came."""

    def __init__(
        self,
        gateway: Gateway,
        task: Task,
        selected: Mapping[str, int],
        *,
        rows: LedgerRows,
        stopping: asyncio.Event,
        on_progress: Callable[[Counts], None] = lambda counts: None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._gateway = gateway
        self._task = task
        self._selected = selected
        self._chosen = Chosen(selected)
        self._rows = rows
        self._stopping = stopping
        self._on_progress = on_progress
        self._clock = clock
        self._pace = Pace(task.rate, clock)
        self._known = Known()
        self._left = task.count
        self._looks = 0
        self._last_s = 0.0
        self.counts = Counts()
        self.is_full = False
        """It ended because the broker gives no more while so many are held."""

    async def run(self) -> None:
        """Move; whatever happens, what was not sent is handed back."""
        task = self._task
        await asyncio.to_thread(self._known.read, task.folder)
        self._chosen.note(self._known.take_started())
        record = await asyncio.to_thread(Record, task.folder)
        producer = self._gateway.producer(task.target)
        sender = Sender(producer, task.target, record, self._clock)
        sender.doubt(self._known.in_doubt)
        hand = Hand(
            self._gateway, task.queue, lease_s=task.lease_s, batch=task.batch, clock=self._clock
        )
        try:
            async with hand:
                await self._move(hand, sender, record)
                self._count(held=len(hand))
        finally:
            self._count(lost_leases=hand.lost_count)
            await producer.aclose()
            record.close()

    async def _move(self, hand: Hand, sender: Sender, record: Record) -> None:
        self._last_s = self._clock.now_s()
        while not self._stopping.is_set() and not await self._is_over(hand, record):
            received = await hand.receive()
            self._looks = 0 if received else self._looks + 1
            if not received:
                continue
            self._last_s = self._clock.now_s()
            # Another task may have sent it, and lost its lease before it could remove it.
            await self._read_others(record)
            await self._take(received, hand, sender, record)

    async def _is_over(self, hand: Hand, record: Record) -> bool:
        left = self._recount()
        if left > 0 and self._looks:
            await self._read_others(record)
            left = self._recount()
        self.is_full = hand.is_full
        if hand.is_full:
            return True
        silence = Silence(look_count=self._looks)
        if left > 0 and self._looks > 1:
            silence = Silence(
                look_count=self._looks,
                since_s=self._clock.now_s() - self._last_s,
                in_other_hands=await self._in_other_hands(len(hand)),
            )
        task = self._task
        return is_over(left, silence, lease_s=task.lease_s, is_resumed=task.is_resumed)

    def _recount(self) -> int:
        """How many are left to be removed, as far as this process knows."""
        gone = self._known.take_fresh()
        self._left -= sum(is_among(entry, self._selected) for entry in gone)
        return self._left

    async def _in_other_hands(self, held_count: int) -> int | None:
        try:
            stats = await self._gateway.admin().stats(self._task.queue)
        except (GatewayError, UnsupportedOperation):
            return None
        return max(0, stats.in_flight - held_count)

    async def _take(
        self, received: Sequence[Delivery], hand: Hand, sender: Sender, record: Record
    ) -> None:
        fates = [self._fate(each) for each in received]
        by_fate = {
            fate: [d for d, its in zip(received, fates, strict=True) if its is fate]
            for fate in Fate
        }
        await self._remove(by_fate[Fate.REMOVE], hand, record)
        for batch in batches(by_fate[Fate.SEND], self._pace.most_at_once(self._task.batch)):
            if not await self._pace.wait_for(len(batch), self._stopping):
                return
            await self._send(batch, hand, sender, record)

    def _fate(self, delivery: Delivery) -> Fate:
        entry = entry_of(delivery)
        return fate_of(
            is_sent=entry in self._known.sent or entry in self._task.sent_before,
            is_selected=self._chosen.has(entry),
        )

    async def _read_others(self, record: Record) -> None:
        await asyncio.to_thread(self._known.read, self._task.folder, but=record.path)
        self._chosen.note(self._known.take_started())

    async def _send(
        self, batch: Sequence[Delivery], hand: Hand, sender: Sender, record: Record
    ) -> None:
        sent = await sender.send(batch, holds=hand.holds, stopping=self._stopping)
        for delivery, at_s in sent.accepted.items():
            self._known.note_sent([entry_of(delivery)], at_s)
        refused = [entry_of(delivery) for delivery, _ in sent.refused]
        self._known.note_refused(refused)
        if refused:
            await asyncio.to_thread(record.refused, refused)
        for delivery, error in sent.refused:
            self._count(refused=1, first_refusal=f"{delivery.message.id}: {error}")
        self._count(sent=len(sent.accepted), repeated=sent.repeated_count)
        await self._remove(list(sent.accepted), hand, record)

    async def _remove(self, deliveries: Sequence[Delivery], hand: Hand, record: Record) -> None:
        task = self._task
        if not deliveries:
            return
        await self._rows.write([(each, self._sent_at_s(each)) for each in deliveries], task.target)
        removal = await hand.remove(deliveries)
        removed = [entry_of(each) for each in removal.gone]
        self._known.note_removed(removed)
        await asyncio.to_thread(record.removed, removed)
        self._count(removed=len(removed))
        self._on_progress(self.counts)
        if removal.error is not None:
            raise removal.error

    def _sent_at_s(self, delivery: Delivery) -> float | None:
        entry = entry_of(delivery)
        at_s = self._known.sent_at_s(entry)
        return self._task.sent_before.get(entry) if at_s is None else at_s

    def _count(self, **more: int | str) -> None:
        self.counts += Counts(**more)  # type: ignore[arg-type]


def batches(deliveries: Sequence[Delivery], most: int) -> list[list[Delivery]]:
    """Batches in order, in which no message id comes twice: answers name messages by it."""
    made: list[list[Delivery]] = []
    ids: set[str] = set()
    for delivery in deliveries:
        if not made or len(made[-1]) >= most or delivery.message.id in ids:
            made.append([])
            ids = set()
        made[-1].append(delivery)
        ids.add(delivery.message.id)
    return made
