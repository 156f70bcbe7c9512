"""The order of a queue of leases: oldest or newest first, and strict across processes."""

from __future__ import annotations

import asyncio

import pytest

from gateways.s3.layout import QueueDescription
from gateways.s3.leases.codec import BatchId, batch_key
from gateways.s3.leases.outbox import MAX_BATCH_COUNT
from gateways.s3.store.objects import Put, Request
from pump.clock import yield_to_loop
from pump.errors import SendFailed
from pump.message import Message
from pump.testing.builders import a_message
from tests.gateways.s3.leases.worlds import (
    KEYS,
    LOST,
    World,
    ack_all,
    bodies,
    take,
    take_all,
)


def some(text: str) -> list[Message]:
    return list(map(a_message, text))


def is_batch(request: Request) -> bool:
    """Whether it writes a batch: its number was taken before."""
    return isinstance(request, Put) and request.key.startswith(KEYS.messages)


async def test_when_lifo_then_the_newest_of_any_process_comes_first(world: World) -> None:
    """R36."""
    sender, receiver = world.process(is_lifo=True), world.process(is_lifo=True)
    await sender.send(some("AB"), delay_s=0.0)
    first = await take(receiver)
    await sender.send(some("CD"), delay_s=0.0)
    await world.clock.advance(1.0)

    rest = await take_all(receiver, 1)

    assert bodies(first) + bodies(rest) == "BDCA"


async def test_when_strict_then_two_processes_have_one_in_flight(world: World) -> None:
    """R37, T7."""
    first, second = (world.process(is_strict=True, turns=2) for _ in range(2))
    await first.send(some("ABCDEF"), delay_s=0.0)
    in_flight, most, order = 0, 0, ""

    async def work(index: int) -> None:
        nonlocal in_flight, most, order
        queue = (first, second)[index]
        while len(order) < 6:
            for each in await take(queue, 5):
                in_flight += 1
                most = max(most, in_flight)
                await yield_to_loop()
                order += each.message.body.decode()
                in_flight -= 1
                await ack_all(queue, [each])
            await world.clock.sleep(0.5)

    working = [asyncio.create_task(work(index)) for index in range(2)]
    await world.clock.advance(60.0)

    assert all(task.done() for task in working)
    assert (most, order) == (1, "ABCDEF")


async def test_when_strict_and_an_earlier_batch_comes_late_then_it_waits_for_the_one_in_flight(
    world: World,
) -> None:
    """R37, T7: two in flight would be one too many, in whatever order they were numbered."""
    slow, quick, other = (world.process(is_strict=True) for _ in range(3))
    may_go = asyncio.Event()
    world.stores[0].gate = lambda request: may_go if is_batch(request) else None
    sending = asyncio.create_task(slow.send(some("A"), delay_s=0.0))
    await world.clock.settle()
    await quick.send(some("B"), delay_s=0.0)
    [held] = await take(quick)
    may_go.set()
    await sending

    assert await take(other) == []
    await ack_all(quick, [held])
    await world.clock.advance(10.0)

    assert bodies([held]) == "B"
    assert bodies(await take(other)) == "A"


async def test_when_strict_and_a_claim_was_overtaken_then_it_is_handed_back_uncounted(
    world: World,
) -> None:
    """R37, T7: an earlier batch came between the listing and the claim."""
    slow, quick = (world.process(is_strict=True) for _ in range(2))
    may_send, may_claim = asyncio.Event(), asyncio.Event()
    world.stores[0].gate = lambda request: may_send if is_batch(request) else None
    sending = asyncio.create_task(slow.send(some("A"), delay_s=0.0))
    await world.clock.settle()
    await quick.send(some("B"), delay_s=0.0)
    world.stores[1].gate = lambda request: may_claim if isinstance(request, Put) else None
    taking = asyncio.create_task(take(quick))
    await world.clock.settle()
    may_send.set()
    await sending
    may_claim.set()

    assert await taking == []
    [first] = await take(quick)
    await ack_all(quick, [first])
    await world.clock.advance(5.0)
    [second] = await take(quick)
    assert bodies([first, second]) == "AB"
    assert second.attempt == 1


async def test_when_strict_and_one_batch_cannot_be_sent_then_no_later_one_is(world: World) -> None:
    """R37: a hole in one send would be another order."""
    queue = world.process(is_strict=True)
    sent = [a_message() for _ in range(2 * MAX_BATCH_COUNT + 1)]
    second = batch_key(KEYS, BatchId(2, MAX_BATCH_COUNT))
    world.stores[0].faults += [(lambda request: second in str(request), LOST)] * 20

    sending = asyncio.create_task(queue.send(sent, delay_s=0.0))
    await world.clock.advance(5.0)
    with pytest.raises(SendFailed) as caught:
        await sending

    failed = [message_id for message_id, _ in caught.value.failures]
    assert failed == [each.id for each in sent[MAX_BATCH_COUNT:]]
    assert len(world.keys("messages/")) == 1


async def test_when_the_order_is_changed_then_the_queue_goes_by_the_new_one(world: World) -> None:
    """R36: and what is held stays held."""
    queue = world.process()
    await queue.send(some("ABCD"), delay_s=0.0)
    held = await take(queue)

    await queue.adopt(QueueDescription(name="orders", is_lifo=True))

    assert bodies(await take_all(queue, 1)) == "DCB"
    await ack_all(queue, held)
