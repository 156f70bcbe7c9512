"""Long polls: they wake when there is something, in the order they came, and lose nothing."""

from __future__ import annotations

import asyncio

import pytest

from gateways.sqs_server.model import Received
from pump.testing.virtual_clock import VirtualClock

from .shop import PatientStore, Shop, redrive


@pytest.fixture(autouse=True)
async def orders(shop: Shop) -> None:
    await shop.make("orders")


async def test_when_a_message_is_sent_then_a_waiting_receive_gets_it_at_once(
    shop: Shop, clock: VirtualClock
) -> None:
    waiting = await shop.begin(shop.receive(wait_s=20))
    assert not waiting.done()

    await shop.send("a")
    await clock.settle()

    assert [each.body for each in waiting.result()] == ["a"]


async def test_when_nothing_comes_then_a_waiting_receive_ends_empty_in_time(
    shop: Shop, clock: VirtualClock
) -> None:
    waiting = await shop.begin(shop.receive(wait_s=20))
    await clock.advance(19.9)
    assert not waiting.done()

    await clock.advance(0.1)

    assert waiting.result() == []
    assert clock.next_due_in_s() is None, "nothing polls"
    assert shop.queue.waiting_count == 0


@pytest.mark.parametrize("is_delayed", [True, False])
async def test_when_a_message_becomes_visible_then_a_waiting_receive_gets_it(
    shop: Shop, clock: VirtualClock, is_delayed: bool
) -> None:
    await shop.send("a", delay_s=7 if is_delayed else 0)
    await shop.receive(visibility_s=7)
    waiting = await shop.begin(shop.receive(wait_s=20))

    await clock.advance(6.9)
    assert not waiting.done()
    await clock.advance(0.1)

    assert [each.body for each in waiting.result()] == ["a"]


async def test_when_a_message_is_given_back_then_a_waiting_receive_gets_it(
    shop: Shop, clock: VirtualClock
) -> None:
    await shop.send("a")
    [got] = await shop.receive()
    waiting = await shop.begin(shop.receive(wait_s=20))

    await shop.change(got, 0)
    await clock.settle()

    assert [each.receive_count for each in waiting.result()] == [2]


async def test_when_several_wait_then_who_came_first_is_served_first(
    shop: Shop, clock: VirtualClock
) -> None:
    first = await shop.begin(shop.receive(1, wait_s=20))
    second = await shop.begin(shop.receive(1, wait_s=20))

    await shop.send("a")
    late = await shop.begin(shop.receive(1))
    await shop.send("b")
    await clock.settle()

    assert [each.body for each in first.result()] == ["a"]
    assert [each.body for each in second.result()] == ["b"]
    assert late.result() == []


async def test_when_one_send_brings_several_then_everyone_gets_a_share(
    shop: Shop, clock: VirtualClock
) -> None:
    first = await shop.begin(shop.receive(2, wait_s=20))
    second = await shop.begin(shop.receive(2, wait_s=20))

    await shop.send("a", "b", "c")
    await clock.settle()

    assert [each.body for each in first.result()] == ["a", "b"]
    assert [each.body for each in second.result()] == ["c"]


async def test_when_a_waiting_receive_is_cancelled_then_the_next_one_gets_the_message(
    shop: Shop, clock: VirtualClock
) -> None:
    gone = await shop.begin(shop.receive(wait_s=20))
    stays = await shop.begin(shop.receive(wait_s=20))
    gone.cancel()
    await clock.settle()

    await shop.send("a")
    await clock.settle()

    assert [each.body for each in stays.result()] == ["a"]


async def test_when_cancelled_after_being_served_then_the_message_is_visible_and_not_counted(
    shop: Shop, clock: VirtualClock
) -> None:
    gone = await shop.begin(shop.receive(wait_s=20))
    stays = await shop.begin(shop.receive(wait_s=20))
    # Served in the send, but cancelled before it can run.
    await shop.send("a")
    gone.cancel()
    await clock.settle()

    [got] = stays.result()

    assert gone.cancelled()
    assert (got.body, got.receive_count) == ("a", 1)


async def test_when_the_queue_is_deleted_then_waiting_receives_end_empty(
    shop: Shop, clock: VirtualClock
) -> None:
    waiting = await shop.begin(shop.receive(wait_s=20))

    await shop.engine.delete_queue(shop.queue)
    await clock.settle()

    assert waiting.result() == []


async def test_when_the_engine_closes_then_waiting_receives_end_empty(
    shop: Shop, clock: VirtualClock
) -> None:
    waiting = await shop.begin(shop.receive(wait_s=20))

    await shop.engine.aclose()
    await clock.settle()

    assert waiting.result() == []
    assert clock.next_due_in_s() is None


async def test_when_visibility_is_zero_then_every_waiting_receive_gets_the_message(
    shop: Shop, clock: VirtualClock
) -> None:
    waiting = [await shop.begin(shop.receive(wait_s=20, visibility_s=0)) for _ in range(3)]

    await shop.send("a")
    await clock.settle()

    assert [[r.receive_count for r in each.result()] for each in waiting] == [[1], [2], [3]]


async def test_when_cancelled_while_the_count_is_written_then_nothing_is_hidden_or_counted(
    clock: VirtualClock,
) -> None:
    store = PatientStore()
    shop = await Shop.open(clock, store)
    await shop.make("dead")
    await shop.make("orders", redrive=redrive("dead", 3))
    await shop.send("a")
    store.hold()
    receiving = await shop.begin(shop.receive())
    assert shop.counts() == (0, 1, 0)

    receiving.cancel()
    await asyncio.wait([receiving])

    assert shop.counts() == (1, 0, 0)
    store.release()
    assert [each.receive_count for each in await shop.receive()] == [1]
    await shop.engine.aclose()


async def test_when_a_fifo_group_is_freed_then_a_waiting_receive_gets_its_next(
    shop: Shop, clock: VirtualClock
) -> None:
    await shop.make("orders.fifo")
    await shop.send_fifo("1", "2")
    [one] = await shop.receive(1)
    waiting = await shop.begin(shop.receive(wait_s=20))

    await shop.delete(one)
    await clock.settle()

    assert [each.body for each in waiting.result()] == ["2"]


async def test_when_a_message_falls_due_as_another_asks_then_who_waits_gets_it(
    shop: Shop, clock: VirtualClock
) -> None:
    await shop.send("a")
    await shop.receive(visibility_s=5)
    late: list[asyncio.Task[list[Received]]] = []
    # Set before the queue's own timer, so it asks first in the very moment.
    clock.call_later(5, lambda: late.append(asyncio.create_task(shop.receive())))
    waiting = await shop.begin(shop.receive(wait_s=20))

    await clock.advance(5)

    assert [each.body for each in waiting.result()] == ["a"]
    assert late[0].result() == []
