"""Workers: so many at once and no more, recalled one by one, never deaf (law 6)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, strategies as st

from pump.clock import yield_to_loop
from pump.loop.lanes import Lanes
from pump.loop.workers import PATIENCE_S, Workers
from pump.message import Delivery
from pump.testing.builders import a_delivery, a_message
from pump.testing.virtual_clock import VirtualClock


class Bench:
    """Workers in a task group, with work that waits for the test."""

    def __init__(self, *, concurrency: int) -> None:
        self.lanes = Lanes()
        self.clock = VirtualClock()
        self.workers = Workers(self.lanes, self._work, concurrency=concurrency, clock=self.clock)
        self.running: list[Delivery] = []
        self.done: list[Delivery] = []
        self.recalled: list[Delivery] = []
        self.most = 0
        self.gates: dict[Delivery, asyncio.Event] = {}
        self.body: Callable[[Delivery], Awaitable[None]] = self._wait

    async def _wait(self, delivery: Delivery) -> None:
        await self.gates.setdefault(delivery, asyncio.Event()).wait()

    async def _work(self, delivery: Delivery) -> None:
        self.running.append(delivery)
        self.most = max(self.most, len(self.running))
        try:
            await self.body(delivery)
        except asyncio.CancelledError:
            if not self.workers.is_recalled(delivery):
                raise
            self.recalled.append(delivery)
        finally:
            self.running.remove(delivery)
        self.lanes.finish(delivery, is_gone=True)
        self.done.append(delivery)

    async def add(self, count: int = 1, group: str | None = None) -> list[Delivery]:
        deliveries = [a_delivery(a_message(group=group)) for _ in range(count)]
        for delivery in deliveries:
            self.lanes.add(delivery)
        self.workers.wake()
        await self.clock.settle()
        return deliveries

    async def finish(self, *deliveries: Delivery) -> None:
        for delivery in deliveries:
            self.gates.setdefault(delivery, asyncio.Event()).set()
        await self.clock.settle()


async def test_when_there_is_more_work_than_workers_then_so_many_run_and_no_more() -> None:
    bench = Bench(concurrency=3)
    async with asyncio.TaskGroup() as group:
        bench.workers.start(group)

        deliveries = await bench.add(7)
        assert bench.running == deliveries[:3]
        await bench.finish(deliveries[1])
        assert bench.running == [deliveries[0], deliveries[2], deliveries[3]]
        await bench.finish(*deliveries)

        assert set(bench.done) == set(deliveries)
        assert (bench.most, bench.workers.running_count) == (3, 0)
        bench.workers.stop()


async def test_when_work_trickles_in_then_parked_workers_are_used_again() -> None:
    bench = Bench(concurrency=5)
    async with asyncio.TaskGroup() as group:
        bench.workers.start(group)

        for _ in range(20):
            await bench.finish(*await bench.add())

        assert len(bench.done) == 20
        assert len([task for task in asyncio.all_tasks() if task.get_name() == "worker"]) == 1
        bench.workers.stop()


async def test_when_no_handler_ever_waits_then_others_still_get_their_turn() -> None:
    bench = Bench(concurrency=1)
    turns: list[int] = []

    async def nothing(delivery: Delivery) -> None:
        return

    async def bystander() -> None:
        while len(bench.done) < 1_000:
            turns.append(len(bench.done))
            await yield_to_loop()

    bench.body = nothing
    async with asyncio.TaskGroup() as group:
        bench.workers.start(group)
        group.create_task(bystander())
        await bench.add(1_000)

        gaps = [b - a for a, b in pairwise(turns)]
        assert max(gaps) <= 64
        bench.workers.stop()


async def test_when_scaled_up_then_more_run_at_once() -> None:
    bench = Bench(concurrency=1)
    async with asyncio.TaskGroup() as group:
        bench.workers.start(group)
        deliveries = await bench.add(5)
        assert len(bench.running) == 1

        bench.workers.resize(3)
        await bench.clock.settle()

        assert bench.running == deliveries[:3]
        await bench.finish(*deliveries)
        bench.workers.stop()


async def test_when_scaled_down_then_running_ones_finish_and_fewer_start() -> None:
    bench = Bench(concurrency=4)
    async with asyncio.TaskGroup() as group:
        bench.workers.start(group)
        deliveries = await bench.add(10)

        bench.workers.resize(2)
        await bench.clock.settle()
        assert bench.running == deliveries[:4]
        await bench.finish(*deliveries[:2])
        assert bench.running == deliveries[2:4]
        await bench.finish(deliveries[2])

        assert len(bench.running) == 2
        await bench.finish(*deliveries)
        assert len(bench.done) == 10
        bench.workers.stop()


@given(st.lists(st.sampled_from(["add", "finish", "up", "down", "recall"]), max_size=40))
def test_when_scaled_at_any_moment_then_all_work_is_done_within_the_limit(
    steps: list[str],
) -> None:
    async def scenario() -> None:
        bench = Bench(concurrency=2)
        limit, added = 2, []
        async with asyncio.TaskGroup() as group:
            bench.workers.start(group)
            for step in steps:
                match step:
                    case "add":
                        added += await bench.add(2)
                    case "finish" if bench.running:
                        await bench.finish(bench.running[0])
                    case "recall" if bench.running:
                        assert bench.workers.recall(bench.running[-1])
                        await bench.clock.settle()
                    case "up" | "down":
                        before = len(bench.running)
                        limit = max(1, limit + (1 if step == "up" else -1))
                        bench.workers.resize(limit)
                        await bench.clock.settle()
                        assert len(bench.running) >= before
                # As many as may run do run; after a scale-down some may still be too many.
                assert len(bench.running) >= min(limit, len(added) - len(bench.done))
            while bench.running:
                await bench.finish(*bench.running)
            assert sorted(map(id, bench.done)) == sorted(map(id, added))
            bench.workers.stop()

    asyncio.run(scenario())


async def test_when_a_delivery_is_recalled_then_it_alone_is_cancelled_and_its_worker_goes_on() -> (
    None
):
    bench = Bench(concurrency=2)
    async with asyncio.TaskGroup() as group:
        bench.workers.start(group)
        first, second, third = await bench.add(3)

        assert bench.workers.recall(first)
        assert bench.workers.recall(first), "a second recall changes nothing"
        await bench.clock.settle()

        assert bench.recalled == [first]
        assert bench.running == [second, third]
        assert not bench.workers.recall(first)
        assert not bench.workers.is_recalled(first)
        await bench.finish(second, third)
        bench.workers.stop()


async def test_when_a_handler_swallows_its_recall_then_its_worker_is_not_cancelled_later() -> None:
    bench = Bench(concurrency=1)

    async def swallow(delivery: Delivery) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await yield_to_loop()

    async with asyncio.TaskGroup() as group:
        bench.workers.start(group)
        bench.body = swallow
        [first] = await bench.add()
        bench.workers.recall(first)
        await bench.clock.settle()

        bench.body = bench._wait
        [second] = await bench.add()
        await bench.finish(second)

        assert bench.done == [first, second]
        bench.workers.stop()


async def test_when_recalled_and_cancelled_from_outside_then_the_outside_wins() -> None:
    """Law 6."""
    bench = Bench(concurrency=1)

    async def pool() -> None:
        async with asyncio.TaskGroup() as group:
            bench.workers.start(group)
            await asyncio.Event().wait()

    pooling = asyncio.create_task(pool())
    await bench.clock.settle()
    [first, _] = await bench.add(2)

    bench.workers.recall(first)
    pooling.cancel()
    await asyncio.wait([pooling])

    assert pooling.cancelled()
    assert bench.running == []


async def test_when_a_handler_swallows_a_cancellation_from_outside_then_its_worker_still_ends() -> (
    None
):
    """Law 6: the next delivery must not start."""
    bench = Bench(concurrency=1)
    started: list[Delivery] = []

    async def swallow(delivery: Delivery) -> None:
        started.append(delivery)
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await yield_to_loop()

    async def pool() -> None:
        async with asyncio.TaskGroup() as group:
            bench.workers.start(group)
            await asyncio.Event().wait()

    bench.body = swallow
    pooling = asyncio.create_task(pool())
    await bench.clock.settle()
    [first, _] = await bench.add(2)

    pooling.cancel()
    await bench.clock.settle()

    assert pooling.cancelled()
    assert started == [first]


async def test_when_everything_is_recalled_then_the_number_is_told_and_waiting_ends() -> None:
    bench = Bench(concurrency=3)
    async with asyncio.TaskGroup() as group:
        bench.workers.start(group)
        deliveries = await bench.add(3)
        waiting = asyncio.create_task(bench.workers.wait_until_done())
        await bench.clock.settle()
        assert not waiting.done()

        assert bench.workers.recall_all() == 3
        await bench.clock.settle()

        assert waiting.done()
        assert set(bench.recalled) == set(deliveries)
        bench.workers.stop()


async def test_when_nothing_runs_then_waiting_until_done_is_over_at_once() -> None:
    bench = Bench(concurrency=1)

    await bench.workers.wait_until_done()

    assert bench.workers.recall_all() == 0


async def test_when_work_raises_then_the_group_hears_of_it() -> None:
    bench = Bench(concurrency=1)

    async def fail(delivery: Delivery) -> None:
        raise RuntimeError("a defect")

    async def pool() -> None:
        async with asyncio.TaskGroup() as group:
            bench.workers.start(group)
            await bench.add()
            await asyncio.Event().wait()

    bench.body = fail
    with pytest.raises(ExceptionGroup) as caught:
        await pool()

    assert caught.group_contains(RuntimeError, match="a defect")


async def test_when_a_handler_leaves_cancellations_behind_then_its_worker_goes_on() -> None:
    """R93: `concurrency` of them would stop the subscription in silence."""
    bench = Bench(concurrency=1)

    async def cancel_itself(delivery: Delivery) -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        task.cancel()

    counts: list[int] = []

    async def count_cancellations(delivery: Delivery) -> None:
        task = asyncio.current_task()
        assert task is not None
        counts.append(task.cancelling())

    async with asyncio.TaskGroup() as group:
        bench.workers.start(group)
        bench.body = cancel_itself
        first = await bench.add(3)
        bench.body = count_cancellations
        second = await bench.add()

        assert bench.done == first + second
        assert counts == [0], "a TaskGroup in the next handler would take them for its own"
        bench.workers.stop()


async def test_when_a_timer_of_a_handler_cancels_a_parked_worker_then_it_still_takes_work() -> None:
    """R93: a home-made timeout that was not called off."""
    bench = Bench(concurrency=1)
    tasks: list[asyncio.Task[Any]] = []

    async def remember(delivery: Delivery) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.append(task)

    async with asyncio.TaskGroup() as group:
        bench.workers.start(group)
        bench.body = remember
        await bench.add()
        for _ in range(3):
            tasks[0].cancel()
            await bench.clock.settle()
        bench.workers.wake()
        tasks[0].cancel()
        await bench.add(2)

        assert len(bench.done) == 3
        assert set(tasks) == {tasks[0]}
        bench.workers.stop()


async def test_when_work_lets_its_own_cancellation_out_then_its_worker_goes_on() -> None:
    """R93."""
    bench = Bench(concurrency=1)

    async def fail(delivery: Delivery) -> None:
        raise asyncio.CancelledError

    async with asyncio.TaskGroup() as group:
        bench.workers.start(group)
        bench.body = fail
        await bench.add(2)
        bench.body = bench._wait
        [last] = await bench.add()
        await bench.finish(last)

        assert bench.done == [last]
        bench.workers.stop()


async def test_when_recalled_and_cancelled_by_itself_then_its_worker_goes_on() -> None:
    """R93."""
    bench = Bench(concurrency=1)

    async def cancel_and_wait(delivery: Delivery) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
            raise

    async with asyncio.TaskGroup() as group:
        bench.workers.start(group)
        bench.body = cancel_and_wait
        [first] = await bench.add()
        bench.workers.recall(first)
        await bench.clock.settle()
        bench.body = bench._wait
        [second] = await bench.add()
        await bench.finish(second)

        assert bench.done == [first, second]
        bench.workers.stop()


class Stubborn:
    """A body that swallows its cancellations until the test lets it go."""

    def __init__(self) -> None:
        self.let_go = asyncio.Event()

    async def __call__(self, delivery: Delivery) -> None:
        while not self.let_go.is_set():
            with suppress(asyncio.CancelledError):
                await self.let_go.wait()


async def test_when_a_handler_never_ends_then_a_stop_leaves_it_behind_after_a_while() -> None:
    """R93: law 5, the pump drains whatever a handler does."""
    bench = Bench(concurrency=2)
    stubborn = bench.body = Stubborn()

    async def pool() -> None:
        async with asyncio.TaskGroup() as group:
            bench.workers.start(group)
            await bench.add(2)
            bench.workers.stop()

    pooling = asyncio.create_task(pool())
    await bench.clock.advance(PATIENCE_S - 0.1)
    assert not pooling.done()
    await bench.clock.advance(0.2)

    assert pooling.done()
    assert all(map(bench.workers.is_left_behind, bench.running))
    assert bench.workers.running_count == 0
    stubborn.let_go.set()
    await bench.clock.settle()


async def test_when_a_handler_never_ends_then_a_cancelled_pool_ends_all_the_same() -> None:
    """R93: law 6."""
    bench = Bench(concurrency=1)
    stubborn = bench.body = Stubborn()

    async def pool() -> None:
        async with asyncio.TaskGroup() as group:
            bench.workers.start(group)
            await bench.add()
            await asyncio.Event().wait()

    pooling = asyncio.create_task(pool())
    await bench.clock.settle()
    pooling.cancel()
    await bench.clock.advance(PATIENCE_S + 0.1)

    assert pooling.cancelled()
    stubborn.let_go.set()
    await bench.clock.settle()


async def test_when_several_workers_raise_then_the_group_hears_of_each() -> None:
    bench = Bench(concurrency=2)

    async def fail(delivery: Delivery) -> None:
        raise RuntimeError(delivery.message.id)

    async def pool() -> None:
        async with asyncio.TaskGroup() as group:
            bench.workers.start(group)
            await bench.add(2)
            await asyncio.Event().wait()

    bench.body = fail
    with pytest.raises(ExceptionGroup) as caught:
        await pool()

    assert caught.group_contains(RuntimeError)
