"""How many requests a message costs: the arithmetic of the layout, counted."""

from __future__ import annotations

import asyncio

import pytest

from gateways.s3.cost import Workload
from gateways.s3.layout import Layout, S3QueueSettings
from gateways.s3.leases import LeasedQueue
from gateways.s3.leases.protocol import take_numbers
from pump.testing.builders import a_message
from tests.gateways.s3.counted import counted
from tests.gateways.s3.leases.worlds import (
    KEYS,
    World,
    ack_all,
    bodies,
    new_id,
    play,
    take,
    take_all,
)

LINGER_S = S3QueueSettings().linger_s


async def test_when_one_process_sends_and_receives_then_a_message_costs_under_three_requests(
    world: World,
) -> None:
    """R50: batches of ten, received and acked by tens."""
    queue = world.process()
    for _ in range(100):
        await queue.send([a_message() for _ in range(10)], delay_s=0.0)

    received = 0
    while batch := await take(queue, 10):
        await ack_all(queue, batch)
        received += len(batch)

    assert received == 1000
    assert world.billed / received <= 2.5


async def test_when_another_process_receives_then_a_message_costs_under_three_requests(
    world: World,
) -> None:
    """R50: it lists the batches, reads each once, and confirms its claims."""
    sender, receiver = world.process(), world.process()
    received = 0
    for _ in range(10):
        for _ in range(10):
            await sender.send([a_message() for _ in range(10)], delay_s=0.0)
        while batch := await take(receiver, 10):
            await ack_all(receiver, batch)
            received += len(batch)

    assert received == 1000
    assert world.billed / received <= 3


async def test_when_several_processes_share_the_work_then_a_message_costs_about_three_requests(
    world: World,
) -> None:
    """R12, R50: who meets another looks where it has been, and begins elsewhere."""
    sender = world.process()
    receivers = [world.process() for _ in range(4)]
    for _ in range(10):
        await sender.send([a_message() for _ in range(100)], delay_s=0.0)

    ids: list[str] = []
    is_busy = True
    while is_busy:
        is_busy = False
        for receiver in receivers:
            batch = await take(receiver, 10)
            await ack_all(receiver, batch)
            ids += [each.message.id for each in batch]
            is_busy = is_busy or bool(batch)

    assert len(ids) == len(set(ids)) == 1000
    assert world.billed / len(ids) <= 3.2


async def test_when_several_processes_want_many_at_once_then_few_claims_are_in_vain(
    world: World,
) -> None:
    """R12, R50: where others claim too, each takes a few at a time, and not the same ones."""
    sender = world.process()
    await asyncio.gather(
        *(sender.send([a_message() for _ in range(100)], delay_s=0.0) for _ in range(10))
    )

    async def work(receiver: LeasedQueue) -> list[str]:
        ids: list[str] = []
        while batch := await take(receiver, 50):
            await ack_all(receiver, batch)
            ids += [each.message.id for each in batch]
        return ids

    shares = await asyncio.gather(*(work(world.process(turns=2)) for _ in range(4)))

    ids = [each for share in shares for each in share]
    assert len(ids) == len(set(ids)) == 1000
    assert world.billed / len(ids) <= 3.3


async def test_when_several_processes_share_single_messages_then_few_claims_are_in_vain(
    world: World,
) -> None:
    """R12, R50: a batch of one is no room to step aside in; they begin at different batches."""
    sender = world.process()
    for number in range(500):
        await sender.send([a_message(str(number))], delay_s=0.0)
    world.s3.counts.clear()

    async def work(receiver: LeasedQueue) -> list[str]:
        ids: list[str] = []
        while batch := await take(receiver, 5):
            await ack_all(receiver, batch)
            ids += [each.message.id for each in batch]
        return ids

    shares = await asyncio.gather(*(work(world.process(turns=2)) for _ in range(4)))

    ids = [each for share in shares for each in share]
    assert len(ids) == len(set(ids)) == 500
    # A claim and an ack each, and few in vain; in the order of numbers there were three.
    assert world.s3.counts["put"] / len(ids) <= 2.5


@pytest.mark.parametrize("batch", [10, 100])
@pytest.mark.parametrize("process_count", [2, 4])
def test_when_requests_take_their_time_then_sharing_costs_under_three_requests_a_message(
    batch: int, process_count: int
) -> None:
    """R12, R50: while one lists, reads and claims, the others claim as well."""
    workload = Workload(
        messages=1000, batch=batch, consumers=10 * process_count, processes=process_count
    )

    assert counted(Layout.LEASES, workload).billable / workload.messages <= 3


async def test_when_ten_thousand_are_pending_then_the_first_are_had_with_a_handful_of_requests(
    world: World,
) -> None:
    """R49, R50: no scan of the whole queue."""
    sender, receiver = world.process(), world.process()
    for _ in range(100):
        await sender.send([a_message() for _ in range(100)], delay_s=0.0)
    before = world.billed

    first = await take(receiver, 10)

    assert len(first) == 10
    # A page of batches, a page of leases, one batch, ten claims, one confirmation.
    assert world.billed - before <= 14


async def test_when_ten_thousand_single_messages_are_pending_then_a_page_is_enough_to_begin(
    world: World,
) -> None:
    """R50: the rest is listed when it is needed."""
    sender, receiver = world.process(), world.process()
    for number in range(2500):
        await sender.send([a_message(str(number))], delay_s=0.0)
    before = world.s3.counts["list"]

    first = await take(receiver, 10)
    listed = world.s3.counts["list"] - before
    received = len(first) + len(await take_all(receiver, 100))

    assert listed <= 2
    assert received == 2500
    assert world.s3.counts["list"] - before <= 10


@pytest.mark.parametrize("is_lifo", [False, True])
async def test_when_a_number_is_missing_before_more_than_a_page_then_no_page_is_listed_again(
    world: World, is_lifo: bool
) -> None:
    """R50: a look begins at the batch that may be on its way, and goes on from page to page."""
    sender, receiver = world.process(), world.process(is_lifo=is_lifo)
    await sender.send([a_message("first")], delay_s=0.0)
    await ack_all(receiver, await take(receiver))
    play(take_numbers(KEYS, 1, None, new_id), world.s3)
    await sender.send([a_message("second")], delay_s=0.0)
    await world.clock.advance(1.0)
    await ack_all(receiver, await take(receiver))
    for _ in range(1000):
        await sender.send([a_message("delayed")], delay_s=3600.0)
    await sender.send([a_message("last")], delay_s=0.0)
    await world.clock.advance(1.0)
    before = world.s3.counts["list"]

    received = await take(receiver)

    assert bodies(received) == "last"
    assert world.s3.counts["list"] - before <= 5


async def test_when_many_send_at_once_then_they_share_an_object(world: World) -> None:
    """R58: what comes while a batch is written goes into the next."""
    queue = world.process(turns=2)
    await asyncio.gather(*(queue.send([a_message()], delay_s=0.0) for _ in range(200)))

    assert world.s3.counts["put"] <= 2 + 2 * 4
    assert len(await take_all(queue, 100)) == 200


async def test_when_nothing_is_there_then_a_wait_costs_a_listing_a_second(world: World) -> None:
    """R4, R50."""
    queue = world.process(turns=1)
    waiting = [asyncio.create_task(take(queue, wait_s=60.0)) for _ in range(50)]
    await world.clock.advance(60.0)

    assert [await each for each in waiting] == [[]] * 50
    assert world.billed <= 75


async def test_when_all_is_done_then_nothing_is_left_but_the_tail(world: World) -> None:
    """R5: batches and leases go once no copy of their writing can be on its way."""
    queue = world.process()
    await take(queue)
    await queue.send([a_message() for _ in range(250)], delay_s=0.0)
    await ack_all(queue, await take_all(queue, 100))
    assert world.keys("messages/")

    await world.clock.advance(LINGER_S + 2.0)
    assert await take(queue) == []
    await world.clock.settle()

    assert world.keys("") == [f"queues/orders/{name}" for name in ("tail.json",)]
