"""Recovery: at any quiet moment, the file says what memory says."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import given, settings, strategies as st

from gateways.sqs_server.engine import Queue, SqsStore
from gateways.sqs_server.model import NewMessage, Received
from pump.testing.virtual_clock import VirtualClock

from .copies import copy_of
from .shop import Shop, redrive

STEPS = st.one_of(
    st.tuples(
        st.just("send"),
        st.sampled_from(["a", "b"]),
        st.sampled_from(["k1", "k2", "k3"]),
        st.sampled_from([0, 0, 15]),
    ),
    st.tuples(st.just("receive"), st.integers(1, 4), st.sampled_from([0, 5, 30])),
    st.tuples(st.just("work"), st.integers(1, 3)),
    st.tuples(st.just("exhaust")),
    st.tuples(st.just("delete"), st.integers(1, 3)),
    st.tuples(st.just("delete late"), st.integers(0, 9)),
    st.tuples(st.just("change"), st.integers(0, 3), st.sampled_from([0, 5, 60])),
    st.tuples(st.just("cancelled receive")),
    st.tuples(st.just("pass"), st.sampled_from([1.0, 6.0, 31.0, 301.0])),
    st.tuples(st.just("purge"), st.sampled_from(["dead", "orders"])),
    st.tuples(st.just("move"), st.sampled_from([None, 1])),
    st.tuples(st.just("cancel move")),
    st.tuples(st.just("recreate")),
)


class Customer:
    """Takes steps at a queue with a dead-letter queue, and keeps every receipt it ever got."""

    def __init__(self, shop: Shop, suffix: str, **queue: Any) -> None:
        self.shop = shop
        self.suffix = suffix
        self._queue = queue
        self._receipts: list[Received] = []

    async def arrive(self) -> None:
        await self.shop.make(f"dead{self.suffix}")
        await self.shop.make(f"orders{self.suffix}", **self._queue)

    async def take_step(self, step: tuple[Any, ...]) -> None:
        shop, engine = self.shop, self.shop.engine
        queue = shop.use(f"orders{self.suffix}")
        match step:
            case ("send", group, key, delay_s):
                await engine.send(queue, self._messages(group, key, delay_s))
            case ("receive", count, visibility_s):
                self._receipts += await shop.receive(count, visibility_s=visibility_s)
            case ("work", count):
                await shop.delete(*await shop.receive(count))
            case ("exhaust",):
                for _ in range(3):
                    self._receipts += await shop.receive(visibility_s=0)
            case ("delete", count):
                await shop.delete(*self._receipts[-count:])
            case ("delete late", position):
                await shop.delete(*self._receipts[position : position + 1])
            case ("change", position, visibility_s):
                for received in self._receipts[position : position + 1]:
                    await shop.change(received, visibility_s)
            case ("cancelled receive",):
                task = asyncio.create_task(shop.receive(2))
                await asyncio.wait([task], timeout=0)
                if not task.cancel():
                    self._receipts += task.result()
                await asyncio.wait([task])
            case ("pass", seconds):
                await shop.clock.advance(seconds)
            case ("purge", name):
                await engine.purge(shop.use(f"{name}{self.suffix}"))
            case ("move", rate):
                dead = shop.use(f"dead{self.suffix}")
                # As on AWS; and two could not both be stopped before one of them moves on.
                if not any(move.is_active for move in engine.moves(dead)):
                    await engine.start_move(dead, None, rate=rate)
            case ("cancel move",):
                for move in engine.moves(shop.use(f"dead{self.suffix}")):
                    await engine.cancel_move(move)
            case ("recreate",):
                await engine.delete_queue(queue)
                await self.arrive()

    def _messages(self, group: str, key: str, delay_s: int) -> list[NewMessage]:
        if not self.suffix:
            return [NewMessage(body="x", delay_s=delay_s), NewMessage(body="y")]
        return [
            NewMessage(body="x", group=group, deduplication_id=key),
            NewMessage(body="y", group="c", deduplication_id=f"{key}y"),
        ]


def picture(queue: Queue, clock: VirtualClock) -> dict[str, object]:
    """Everything about a queue that must survive."""
    queue.promote()
    state = queue.state
    messages = [
        (
            r.seq,
            r.origin,
            r.body,
            r.extra,
            r.group,
            r.source,
            r.sent_at_s,
            r.receive_count,
            r.first_at_s,
            r.phase,
            round(r.hold.due_s, 3) if r.hold is not None else None,
        )
        for r in state.records.values()
    ]
    state.deduplication.forget(clock.now_s())
    return {
        "settings": state.settings,
        "messages": messages,
        "keys": state.deduplication.items(),
    }


async def pictures(shop: Shop) -> dict[str, dict[str, object]]:
    await shop.clock.settle()
    queues = shop.engine.queues
    return {address.name: picture(queue, shop.clock) for address, queue in queues.items()}


def check_counts(queue: Queue) -> None:
    """What is counted along the way is what counting all gives."""
    phases = [record.phase for record in queue.state.records.values()]
    counts = queue.state.counts(0.0)
    assert counts.visible == phases.count(0)
    assert counts.delayed == phases.count(1)
    assert counts.in_flight == phases.count(2) + phases.count(3)


async def run(steps: list[tuple[Any, ...]], suffix: str, limit: int | None, folder: Path) -> None:
    clock = VirtualClock()
    shop = await Shop.open(clock, SqsStore(folder))
    queue: dict[str, Any] = {"retention_s": 200}
    if limit is not None:
        queue["redrive"] = redrive(f"dead{suffix}", limit)
    customer = Customer(shop, suffix, **queue)
    await customer.arrive()

    for step in [("send", "a", "k0", 0), *steps]:
        await customer.take_step(step)
        for each in shop.engine.queues.values():
            check_counts(each)
    # Counts may be behind for a moment.
    await clock.advance(0.2)
    await clock.settle()
    copy = await asyncio.to_thread(copy_of, folder)
    ours = await pictures(shop)
    tasks = [(t.handle, t.moved) for t in shop.engine.moves(shop.use(f"dead{suffix}"))]
    await shop.engine.aclose()

    again = await Shop.open(clock, SqsStore(copy))
    recovered = [(t.handle, t.moved) for t in again.engine.moves(again.use(f"dead{suffix}"))]
    assert recovered == tasks
    for task in again.engine.moves(again.use(f"dead{suffix}")):
        await again.engine.cancel_move(task)
    assert (await pictures(again)) == ours
    await again.engine.aclose()


@given(
    steps=st.lists(STEPS, min_size=8, max_size=25),
    suffix=st.sampled_from(["", ".fifo"]),
    limit=st.sampled_from([None, 1, 2]),
)
@settings(max_examples=20)
def test_when_recovered_at_any_quiet_moment_then_memory_is_as_it_was(
    steps: list[tuple[Any, ...]], suffix: str, limit: int | None
) -> None:
    """R10, R44, T3, T4."""
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(run(steps, suffix, limit, Path(folder)))
