"""A queue, a spool, and processes between them that die where a test wants them to."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import attrs

from pump.message import Message
from pump.outcome import ACK, Refusal, Settlement
from pump.ports import ConsumerPort, Gateway
from pump.spark.data.feed import Feed, Offset
from pump.spark.data.options import QueueReference, StreamOptions
from pump.spark.data.spool import Segment, Spool, SpoolEntry, read_segment
from pump.subscription import MakeChannels, QueueSpec, Subscription
from pump.testing.virtual_clock import VirtualClock
from tests.core.faulty_gateway import FaultyGateway

_T = TypeVar("_T")
QUEUE = "orders"


class Died(Exception):
    """The process ends here."""


def options(folder: Path, **fields: Any) -> StreamOptions:
    return StreamOptions(
        place=QueueReference(url="memory://", queue=QUEUE),
        spool=folder,
        **{"lease": timedelta(seconds=60), "retain": timedelta(0), **fields},
    )


class WatchedGateway(FaultyGateway):
    """Notes every message that was acked and not in the spool at that moment."""

    def __init__(self, clock: VirtualClock, folder: Path) -> None:
        super().__init__(clock, receive_batch=10, settle_batch=10, max_pollers=2)
        self.folder = folder
        self.unspooled: list[str] = []

    def consumer(self, subscription: Subscription) -> ConsumerPort:
        return _Watched(super().consumer(subscription), self)


@attrs.frozen
class _Watched:
    inner: ConsumerPort
    gateway: WatchedGateway

    async def receive(self, *, max_count: int, wait_s: float) -> Any:
        return await self.inner.receive(max_count=max_count, wait_s=wait_s)

    async def settle(self, settlements: Sequence[Settlement]) -> Sequence[Refusal]:
        spooled = set(await asyncio.to_thread(spooled_ids, self.gateway.folder))
        self.gateway.unspooled += [
            each.delivery.message.id
            for each in settlements
            if each.action == ACK and each.delivery.message.id not in spooled
        ]
        return await self.inner.settle(settlements)

    async def extend(self, deliveries: Any, *, lease_s: float) -> Sequence[Refusal]:
        return await self.inner.extend(deliveries, lease_s=lease_s)

    async def aclose(self) -> None:
        await self.inner.aclose()


class MortalSpool(Spool):
    """A spool whose process dies before or after the step that is named."""

    dies: tuple[str, str] | None = None

    def _step(self, when: str, what: str) -> None:
        if self.dies == (when, what):
            raise Died

    def write(self, entries: Sequence[SpoolEntry]) -> Segment:
        self._step("before", "write")
        segment = super().write(entries)
        self._step("after", "write")
        return segment

    def publish(self, segment: Segment) -> None:
        self._step("before", "publish")
        super().publish(segment)
        self._step("after", "publish")

    def note_settled(self, number: int) -> None:
        self._step("before", "note")
        super().note_settled(number)
        self._step("after", "note")


def spooled_ids(folder: Path) -> list[str]:
    """The ids in all segments that a reader would find, in order."""
    numbers = sorted(
        int(path.name.partition("-")[0]) for path in (folder / "segments").glob("*.parquet")
    )
    return [id_ for number in numbers for id_ in ids_of(folder, number)]


def ids_of(folder: Path, number: int) -> list[str]:
    batches = list(read_segment(folder, number))
    return [str(id_) for batch in batches for id_ in batch.column("id").to_pylist()]


async def batch_ids(folder: Path, start: Offset, end: Offset) -> list[str]:
    """What Spark reads between two offsets."""
    return [
        id_
        for number in range(start["segment"] + 1, end["segment"] + 1)
        for id_ in await asyncio.to_thread(ids_of, folder, number)
    ]


def make_old(folder: Path) -> None:
    """Let every segment have been written long ago."""
    for path in (folder / "segments").iterdir():
        os.utime(path, (0, 0))


async def put(gateway: Gateway, count: int) -> list[str]:
    await gateway.open()
    await gateway.admin().ensure(QueueSpec(name=QUEUE), MakeChannels.CREATE)
    messages = [Message(body=b"%d" % number) for number in range(count)]
    return list(await gateway.producer(QUEUE).send(messages))


async def in_time(clock: VirtualClock, work: Awaitable[_T]) -> _T:
    """Let time pass until the work is done."""
    task = asyncio.ensure_future(work)
    while not task.done():
        await clock.advance(1)
    return task.result()


async def depth(gateway: Gateway) -> int:
    stats = await gateway.admin().stats(QUEUE)
    return stats.visible + stats.in_flight


async def open_feed(
    gateway: Gateway, clock: VirtualClock, folder: Path, spool: Spool | None = None, **fields: Any
) -> Feed:
    feed = Feed(gateway, options(folder, **fields), clock=clock, spool=spool, lock_s=3.0)
    await in_time(clock, feed.open())
    return feed
