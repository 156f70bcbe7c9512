"""The memory gateway: waiting, waking, cancelling, redrive by time, and what it costs."""

from __future__ import annotations

import asyncio
import tracemalloc
from datetime import timedelta

import pytest

from gateways.memory import MemoryGateway
from pump import headers
from pump.capabilities import OrderingMode
from pump.errors import InvalidReceipt
from pump.message import Message
from pump.ports import Gateway
from pump.testing.virtual_clock import VirtualClock

from .queue_user import LEASE_S, QueueUser


@pytest.fixture
def gateway(clock: VirtualClock) -> MemoryGateway:
    return MemoryGateway(clock)


@pytest.fixture
async def orders(gateway: MemoryGateway) -> QueueUser:
    return await QueueUser(gateway).create()


def test_when_built_then_it_is_a_gateway(gateway: MemoryGateway) -> None:
    assert isinstance(gateway, Gateway)


async def test_when_a_message_is_sent_then_a_waiting_receive_gets_it(
    orders: QueueUser, clock: VirtualClock
) -> None:
    """R1, R3."""
    waiting = asyncio.create_task(orders.receive(wait_s=20))
    await clock.settle()

    [sent] = await orders.send("a")

    [delivery] = await waiting
    assert (delivery.message.id, delivery.attempt) == (sent, 1)
    assert delivery.lease_expires_at_s == clock.now_s() + LEASE_S


async def test_when_nothing_comes_then_a_receive_ends_at_its_timeout(
    orders: QueueUser, clock: VirtualClock
) -> None:
    """R4."""
    waiting = asyncio.create_task(orders.receive(wait_s=20))

    await clock.advance(19.9)
    assert not waiting.done()

    await clock.advance(0.1)
    assert await waiting == []


async def test_when_a_lease_or_a_delay_ends_then_a_waiting_receive_is_woken(
    orders: QueueUser, clock: VirtualClock
) -> None:
    """R8, R9."""
    await orders.send("leased")
    [first] = await orders.receive()
    await orders.send("delayed", delay_s=10)

    waiting = asyncio.create_task(orders.receive(wait_s=60))
    await clock.advance(10)
    [delayed] = await waiting
    waiting = asyncio.create_task(orders.receive(wait_s=60))
    await clock.advance(20)
    [again] = await waiting

    assert delayed.message.body == b"delayed"
    assert (again.message.id, again.attempt) == (first.message.id, 2)
    assert again.receipt != first.receipt


async def test_when_a_lease_is_over_then_its_receipt_is_refused_and_nothing_changes(
    orders: QueueUser, clock: VirtualClock
) -> None:
    """R6, R16."""
    await orders.send("a")
    [first] = await orders.receive()
    await clock.advance(LEASE_S)

    [settled] = await orders.ack(first)
    [extended] = await orders.consumer.extend([first], lease_s=60)

    assert isinstance(settled.error, InvalidReceipt)
    assert settled.error.receipt == first.receipt
    assert extended.is_final
    assert (await orders.stats()).visible == 1


async def test_when_a_waiting_receive_is_cancelled_then_it_takes_nothing(
    orders: QueueUser, clock: VirtualClock
) -> None:
    """R4: cancelled while waiting, and cancelled after it was woken."""
    early = asyncio.create_task(orders.receive(wait_s=20))
    woken = asyncio.create_task(orders.receive(wait_s=20))
    other = asyncio.create_task(orders.receive(wait_s=20))
    await clock.settle()
    early.cancel()
    await clock.settle()

    await orders.send("a")
    woken.cancel()
    await clock.settle()

    assert early.cancelled()
    assert woken.cancelled()
    [delivery] = await other
    assert delivery.attempt == 1


async def test_when_a_hundred_wait_for_one_message_then_one_wins(
    orders: QueueUser, clock: VirtualClock
) -> None:
    """R12, R13."""
    waiting = [asyncio.create_task(orders.receive(wait_s=5)) for _ in range(100)]
    await clock.settle()

    await orders.send("a")
    await clock.advance(5)

    won = [task for task in waiting if await task]
    assert len(won) == 1


async def test_when_a_batch_is_sent_then_all_who_wait_get_their_share(
    orders: QueueUser, clock: VirtualClock
) -> None:
    waiting = [asyncio.create_task(orders.receive(1, wait_s=5)) for _ in range(3)]
    await clock.settle()

    await orders.send("a", "b", "c")

    assert [[d.message.body for d in await task] for task in waiting] == [[b"a"], [b"b"], [b"c"]]


async def test_when_the_last_delivery_expires_then_it_is_dead_lettered_without_a_receive(
    gateway: MemoryGateway, clock: VirtualClock
) -> None:
    """R20, R21, T5."""
    orders = QueueUser(gateway, max_receive_count=1, dead_letter_queue="dead")
    await orders.create()
    [sent] = await orders.send("a", type="Order", correlation_id="c", headers={"k": "v"})
    await orders.receive()
    dead = QueueUser(gateway, "dead")

    waiting = asyncio.create_task(dead.receive(wait_s=60))
    await clock.advance(LEASE_S)

    [letter] = await waiting
    assert (letter.message.id, letter.attempt) == (sent, 1)
    assert (letter.message.body, letter.message.correlation_id) == (b"a", "c")
    assert letter.message.headers["k"] == "v"
    assert letter.message.headers[headers.ORIGINAL_TOPIC] == "orders"
    assert letter.message.headers[headers.REJECTION_REASON] == "DeliveryError"
    assert "max_receive_count" in letter.message.headers[headers.REJECTION_DETAIL]
    assert letter.message.headers[headers.REJECTION_TIMESTAMP].endswith("+00:00")
    assert letter.message.headers[headers.ORIGINAL_TYPE] == "Order"
    assert letter.message.headers[headers.ATTEMPTS] == "1"
    assert (await orders.stats()).visible == 0


async def test_when_deferred_for_the_last_time_then_dead_lettered_at_once_but_not_when_abandoned(
    gateway: MemoryGateway,
) -> None:
    """T5."""
    orders = QueueUser(gateway, max_receive_count=2, dead_letter_queue="dead")
    await orders.create()
    await orders.send("a")
    for _ in range(3):
        [delivery] = await orders.receive()
        await orders.abandon(delivery)
    [delivery] = await orders.receive()
    await orders.defer(delivery)
    [delivery] = await orders.receive()

    await orders.defer(delivery, delay_s=60)

    assert delivery.attempt == 2
    assert (await orders.stats("dead")).visible == 1


async def test_when_a_strict_head_is_dead_lettered_then_its_successors_are_freed(
    gateway: MemoryGateway, clock: VirtualClock
) -> None:
    """R37, T7."""
    orders = QueueUser(
        gateway, ordering_guarantee=True, max_receive_count=1, dead_letter_queue="dead"
    )
    await orders.create()
    await orders.send("a", "b")
    assert await orders.bodies() == ["a"]
    waiting = asyncio.create_task(orders.bodies(wait_s=60))

    await clock.advance(LEASE_S)

    assert await waiting == ["b"]


async def test_when_a_group_is_in_flight_then_it_waits_while_others_go_on(
    orders: QueueUser,
) -> None:
    """R38."""
    await orders.send("a1", "a2", group="a")
    await orders.send("b1", group="b")
    await orders.send("free")

    [a1] = await orders.receive(1)
    others = await orders.bodies()
    await orders.ack(a1)

    assert others == ["b1", "free"]
    assert await orders.bodies() == ["a2"]


async def test_when_newest_first_then_the_newest_comes_first_also_after_a_return(
    gateway: MemoryGateway,
) -> None:
    """R36."""
    orders = await QueueUser(gateway, ordering=OrderingMode.LIFO).create()
    await orders.send("a", "b", "c")
    [c] = await orders.receive(1)
    await orders.send("d")
    await orders.abandon(c)

    assert await orders.bodies() == ["d", "c", "b", "a"]


async def test_when_sent_twice_within_the_window_then_delivered_once(
    gateway: MemoryGateway, clock: VirtualClock
) -> None:
    """R39."""
    orders = await QueueUser(gateway, options={"deduplication_window": 60}).create()
    await orders.send("a", deduplication_id="k")
    [second] = await orders.send("a", deduplication_id="k")
    within = await orders.receive()
    await clock.advance(60)
    await orders.send("b", deduplication_id="k")

    assert second
    assert len(within) == 1
    assert "b" in await orders.bodies()


async def test_when_extended_in_part_then_only_that_part_stays_hidden(
    orders: QueueUser, clock: VirtualClock
) -> None:
    """R15."""
    await orders.send("a", "b")
    a, _ = await orders.receive()
    await clock.advance(20)

    assert await orders.consumer.extend([a], lease_s=LEASE_S) == []
    await clock.advance(10)

    assert await orders.bodies() == ["b"]
    assert await orders.ack(a) == []


async def test_when_nobody_waits_then_no_timer_is_set(
    orders: QueueUser, clock: VirtualClock
) -> None:
    await orders.send("a", "b", delay_s=0.0)
    await orders.send("c", delay_s=30)

    await orders.receive()

    assert clock.next_due_in_s() is None


async def test_when_many_messages_pass_then_memory_stays_flat(gateway: MemoryGateway) -> None:
    orders = await QueueUser(gateway, lease=timedelta(hours=1)).create()
    messages = [Message(body=b"x", group=None if n % 2 else f"g{n}") for n in range(100)]

    async def pass_through(rounds: int) -> None:
        for _ in range(rounds):
            await orders.producer.send(messages)
            deliveries = await orders.receive(50)
            await orders.ack(*deliveries, *await orders.receive(100))

    await pass_through(20)
    tracemalloc.start()
    await pass_through(100)
    grown, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert (await orders.stats()).visible == 0
    assert grown < 100_000
