"""Contract: many consumers, one winner; many operations, nothing lost and nothing doubled."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta

import pytest

from ...message import Delivery
from ...ports import ConsumerPort
from ..builders import a_message, ack
from .base import ContractTests
from .rig import Channel, Rig
from .soak import Soak


class ConcurrencyContract(ContractTests):
    """R12, R13, R14, R43, R53."""

    @pytest.mark.parametrize("count", [2, 100, 300])
    async def test_when_many_ask_for_one_message_then_one_gets_it_and_the_others_do_not_see_it(
        self, rig: Rig, count: int
    ) -> None:
        """R12, R13, T13."""
        queue = await open_patient(rig)
        await queue.send(a_message())

        asking = [start_receive(rig, queue, wait_s=rig.tick_s) for _ in range(count)]

        [winner] = [each for answer in await answers(rig, asking) for each in answer]
        assert not await queue.settle(ack(winner))

    @pytest.mark.parametrize("count", [2, 100, 300])
    async def test_when_many_wait_and_one_message_comes_then_one_gets_it_until_its_lease_ends(
        self, rig: Rig, count: int
    ) -> None:
        """R12, R13: the others see it unavailable until then."""
        rig.needs("has_lease_expiry")
        queue = await rig.open_queue()
        came: asyncio.Queue[tuple[Delivery, float]] = asyncio.Queue()

        async def receive() -> None:
            consumer = queue.another_consumer()
            for each in await consumer.receive(max_count=1, wait_s=rig.long_s):
                came.put_nowait((each, rig.clock.now_s()))

        async def two_came() -> list[tuple[Delivery, float]]:
            return [await came.get(), await came.get()]

        for _ in range(count):
            rig.start(receive())
        await rig.settle()

        await queue.send(a_message())

        two = rig.start(two_came(), "a receipt, and another when the lease has ended")
        assert await rig.ends(two, within_s=rig.lease_s), rig.late(two)
        (first, _), (again, came_at_s) = await two
        assert came.empty()
        assert (first.attempt, again.attempt) == (1, 2)
        assert first.receipt != again.receipt
        assert came_at_s >= first.lease_expires_at_s - rig.slack_s - 1e-6

    async def test_when_many_ask_for_many_then_each_message_is_delivered_once(
        self, rig: Rig
    ) -> None:
        """R12, R14, R53."""
        queue = await open_patient(rig)
        sent = [a_message() for _ in range(200)]
        asking = [start_receive(rig, queue, wait_s=rig.tick_s, max_count=3) for _ in range(100)]
        await rig.settle()

        await asyncio.gather(
            *(queue.send(*sent[start : start + 20]) for start in range(0, 200, 20))
        )

        received = [each for answer in await answers(rig, asking) for each in answer]
        received += await queue.take(200)
        assert sorted(each.message.id for each in received) == sorted(each.id for each in sent)
        assert len({each.receipt for each in received}) == 200

    async def test_when_many_ack_one_delivery_then_one_of_them_succeeds(self, rig: Rig) -> None:
        """R14, R53; law 1."""
        queue = await rig.open_queue()
        await queue.send(a_message())
        [received] = await queue.receive()

        refused = await asyncio.gather(*(queue.settle(ack(received)) for _ in range(20)))

        assert sorted(len(each) for each in refused) == [0] + [1] * 19

    @pytest.mark.parametrize("seed", [1, 2, 3])
    async def test_when_everything_happens_at_once_then_nothing_is_lost_or_doubled(
        self, rig: Rig, seed: int
    ) -> None:
        """R43, R53, T13: sent = acked + remaining, whatever the mix of operations."""
        rig.needs("has_lease_expiry")
        rig.needs_seeds(seed)
        soak = Soak(rig, await rig.open_queue(), seed=seed)

        await soak.run(workers=12, steps=25)

        remaining = await soak.drain()
        assert len(soak.acked) == len(set(soak.acked))
        assert sorted([*soak.acked, *remaining]) == sorted(soak.sent)
        assert soak.shared == []


async def open_patient(rig: Rig) -> Channel:
    """A queue whose leases outlast every wait of these tests, also where brokers are slow."""
    return await rig.open_queue(lease=timedelta(seconds=20 * rig.lease_s))


async def answers(
    rig: Rig, asking: Sequence[asyncio.Task[Sequence[Delivery]]]
) -> Sequence[Sequence[Delivery]]:
    """What each got within a tick, if only that there is nothing."""
    assert await rig.ends(*asking, within_s=rig.tick_s), rig.late(*asking)
    return await asyncio.gather(*asking)


def start_receive(
    rig: Rig, queue: Channel, *, wait_s: float, max_count: int = 1
) -> asyncio.Task[Sequence[Delivery]]:
    """Let a consumer of its own begin to receive."""

    async def receive(consumer: ConsumerPort) -> Sequence[Delivery]:
        return await consumer.receive(max_count=max_count, wait_s=wait_s)

    return rig.start(receive(queue.another_consumer()))
