"""Redrive: a message that was received too often goes to the dead-letter queue instead (T5)."""

from __future__ import annotations

import attrs
import pytest

from gateways.sqs_server.engine.entries import MessagesMoved
from gateways.sqs_server.model import Attribute
from pump.testing.virtual_clock import EPOCH_S, VirtualClock

from .shop import PatientStore, Shop, redrive


@pytest.fixture(autouse=True)
async def orders(shop: Shop) -> None:
    await shop.make("dead")
    await shop.make("orders", redrive=redrive("dead", 2))


async def exhaust(shop: Shop, count: int = 2) -> None:
    for _ in range(count):
        assert await shop.receive(visibility_s=0)


async def test_when_received_too_often_then_the_next_receive_moves_it_instead(
    shop: Shop, clock: VirtualClock
) -> None:
    """T5."""
    [accepted] = await shop.send("a")
    await exhaust(shop)
    await shop.send("b")
    assert shop.counts() == (2, 0, 0), "it moves when somebody asks"
    await clock.advance(5)

    assert await shop.bodies() == ["b"]

    source = shop.queue.address.arn
    shop.use("dead")
    [dead] = await shop.receive()
    assert (dead.id, dead.body) == (accepted.id, "a")
    assert dead.receive_count == 3, "counted across all queues"
    assert (dead.dead_letter_source, dead.sent_at_s) == (source, EPOCH_S)
    assert dead.first_received_at_s == EPOCH_S + 5


async def test_when_dead_letters_die_again_then_each_queue_has_a_limit_of_its_own(
    shop: Shop,
) -> None:
    await shop.make("last")
    await shop.make("dead-2", redrive=redrive("last", 1))
    await shop.make("orders-2", redrive=redrive("dead-2", 2))
    await shop.send("a", attributes={"long": Attribute("String", "x" * 100)})

    counts = []
    for name in ("orders-2", "dead-2", "last"):
        shop.use(name)
        while got := await shop.receive(visibility_s=0, max_count=1):
            counts.append((name, got[0].receive_count))
            if len(counts) > 4:
                break

    assert counts == [("orders-2", 1), ("orders-2", 2), ("dead-2", 3), ("last", 4), ("last", 5)]


async def test_when_a_receive_meets_only_dead_ones_then_it_goes_on_waiting(
    shop: Shop, clock: VirtualClock
) -> None:
    await shop.send("a")
    await exhaust(shop)
    waiting = await shop.begin(shop.receive(wait_s=20))
    assert not waiting.done()

    await shop.send("b")
    await clock.settle()

    assert [each.body for each in waiting.result()] == ["b"]


async def test_when_somebody_waits_at_the_dead_letter_queue_then_it_is_woken(
    shop: Shop, clock: VirtualClock
) -> None:
    await shop.send("a")
    await exhaust(shop)
    shop.use("dead")
    waiting = await shop.begin(shop.receive(wait_s=20))

    shop.use("orders")
    await shop.receive()
    await clock.settle()

    assert [each.body for each in waiting.result()] == ["a"]


async def test_when_the_last_visibility_ends_with_a_receive_waiting_then_it_is_moved(
    shop: Shop, clock: VirtualClock
) -> None:
    await shop.send("a")
    await exhaust(shop, 1)
    await shop.receive(visibility_s=5)
    waiting = await shop.begin(shop.receive(wait_s=20))

    await clock.advance(5)

    assert not waiting.done()
    shop.use("dead")
    assert shop.counts() == (1, 0, 0)
    await clock.advance(20)


async def test_when_the_dead_letter_queue_does_not_exist_then_delivery_goes_on(
    shop: Shop,
) -> None:
    await shop.make("lonely", redrive=redrive("nowhere", 1))
    await shop.send("a")
    await exhaust(shop, 3)

    [got] = await shop.receive()

    assert got.receive_count == 4


async def test_when_dead_letters_age_then_they_expire_by_when_they_were_first_sent(
    shop: Shop, clock: VirtualClock
) -> None:
    shop.use("dead")
    await shop.engine.configure(shop.queue, attrs.evolve(shop.queue.settings, retention_s=100))
    shop.use("orders")
    await shop.send("old")
    await clock.advance(50)
    shop.use("dead")
    await shop.send("young")
    shop.use("orders")
    await exhaust(shop)
    await shop.receive()
    shop.use("dead")
    assert shop.counts() == (2, 0, 0)

    await clock.advance(50)

    assert [record.body for record in shop.queue.state.records.values()] == ["young"]


async def test_when_a_fifo_message_dies_then_it_is_new_there_and_its_group_goes_on(
    shop: Shop, clock: VirtualClock
) -> None:
    await shop.make("dead.fifo")
    await shop.make("orders.fifo", redrive=redrive("dead.fifo", 1))
    [first, *_] = await shop.send_fifo("1", "2")
    await shop.receive(1, visibility_s=0)
    await clock.advance(5)

    assert await shop.bodies() == ["2"], "without waiting"

    shop.use("dead.fifo")
    [dead] = await shop.receive()
    assert (dead.id, dead.group, dead.deduplication_id) == (first.id, "g", "1")
    assert dead.sequence_number is not None
    assert first.sequence_number is not None
    assert dead.sequence_number > first.sequence_number
    assert dead.sent_at_s == EPOCH_S + 5


async def test_when_the_move_cannot_be_written_then_the_message_stays_and_is_tried_again(
    clock: VirtualClock,
) -> None:
    """T5: nothing is lost between the queues."""
    store = PatientStore()
    shop = await Shop.open(clock, store)
    await shop.make("dead")
    await shop.make("orders", redrive=redrive("dead", 1))
    await shop.send("a")
    await exhaust(shop, 1)
    store.refuses = lambda entry: isinstance(entry, MessagesMoved)

    assert await shop.receive() == []
    assert shop.counts() == (0, 1, 0)

    store.refuses = lambda entry: False
    await clock.advance(1)
    assert await shop.receive() == []
    assert shop.counts() == (0, 0, 0)
    shop.use("dead")
    assert await shop.bodies() == ["a"]
    await shop.engine.aclose()


async def test_when_the_queue_is_purged_meanwhile_then_its_dead_letter_is_gone_too(
    clock: VirtualClock,
) -> None:
    store = PatientStore()
    shop = await Shop.open(clock, store)
    await shop.make("dead")
    await shop.make("orders", redrive=redrive("dead", 1))
    await shop.send("a")
    await exhaust(shop, 1)
    store.hold()
    purging = await shop.begin(shop.engine.purge(shop.queue))
    receiving = await shop.begin(shop.receive())
    store.release()
    await clock.settle()

    assert purging.result() == 1
    assert receiving.result() == []
    shop.use("dead")
    assert shop.counts() == (0, 0, 0)
    await shop.engine.aclose()


async def test_when_the_dead_letter_queue_is_being_deleted_then_nothing_is_moved_there(
    clock: VirtualClock,
) -> None:
    store = PatientStore()
    shop = await Shop.open(clock, store)
    dead = await shop.make("dead")
    await shop.make("orders", redrive=redrive("dead", 1))
    await shop.send("a")
    await exhaust(shop, 1)
    store.hold()
    deleting = await shop.begin(shop.engine.delete_queue(dead))
    receiving = await shop.begin(shop.receive())
    store.release()
    await clock.settle()

    assert deleting.done()
    assert [each.receive_count for each in receiving.result()] == [2]
    await shop.engine.aclose()
