"""Failed writes: memory never runs ahead of what is written, and goes on when there is room."""

from __future__ import annotations

from collections.abc import AsyncIterator

import attrs
import pytest

from gateways.sqs_server.engine.entries import Counted, Deleted
from pump.errors import StorageFailed
from pump.testing.virtual_clock import VirtualClock

from .shop import PatientStore, Shop, address, redrive


@pytest.fixture
def store() -> PatientStore:
    return PatientStore()


@pytest.fixture
async def shop(clock: VirtualClock, store: PatientStore) -> AsyncIterator[Shop]:
    shop = await Shop.open(clock, store)
    await shop.make("orders")
    yield shop
    await shop.engine.aclose()


async def test_when_a_send_is_not_written_yet_then_nobody_sees_it(
    shop: Shop, store: PatientStore, clock: VirtualClock
) -> None:
    """T3."""
    store.hold()
    sending = await shop.begin(shop.send("a"))
    assert shop.counts() == (0, 0, 0)
    assert not sending.done()

    store.release()
    await clock.settle()

    assert sending.done()
    assert shop.counts() == (1, 0, 0)


async def test_when_a_send_fails_then_nothing_is_stored_and_its_id_is_free(
    shop: Shop, store: PatientStore
) -> None:
    await shop.make("orders.fifo")
    store.refuses = lambda entry: True
    with pytest.raises(StorageFailed):
        await shop.send_fifo("1")

    store.refuses = lambda entry: False
    await shop.send_fifo("1")

    assert await shop.bodies() == ["1"]


async def test_when_an_original_is_not_written_yet_then_its_duplicate_waits_for_it(
    shop: Shop, store: PatientStore, clock: VirtualClock
) -> None:
    await shop.make("orders.fifo")
    store.hold()
    original = await shop.begin(shop.send_fifo("1"))
    duplicate = await shop.begin(shop.send_fifo("1"))
    assert not duplicate.done()

    store.release(fails=True)
    await clock.settle()

    assert isinstance(original.exception(), StorageFailed)
    assert isinstance(duplicate.exception(), StorageFailed)


async def test_when_a_send_is_cancelled_then_it_is_stored_or_not_but_known(
    shop: Shop, store: PatientStore, clock: VirtualClock
) -> None:
    store.hold()
    sending = await shop.begin(shop.send("a"))
    sending.cancel()
    await clock.settle()

    store.release()

    assert await shop.bodies() == ["a"], "it was written, so it is there"


async def test_when_a_delete_is_being_written_then_nobody_receives_the_message(
    shop: Shop, store: PatientStore, clock: VirtualClock
) -> None:
    await shop.send("a")
    [got] = await shop.receive(visibility_s=5)
    store.hold()
    deleting = await shop.begin(shop.delete(got))
    again = await shop.begin(shop.delete(got))
    await clock.advance(10)
    assert await shop.receive() == []

    store.release()
    await clock.settle()

    assert (deleting.result(), again.result()) == ([None], [None])
    assert shop.counts() == (0, 0, 0)


async def test_when_a_delete_fails_then_the_message_is_as_it_was(
    shop: Shop, store: PatientStore, clock: VirtualClock
) -> None:
    await shop.send("a")
    [got] = await shop.receive(visibility_s=5)
    store.refuses = lambda entry: isinstance(entry, Deleted)
    with pytest.raises(StorageFailed):
        await shop.delete(got)
    assert shop.counts() == (0, 1, 0)

    await clock.advance(5)
    assert shop.counts() == (1, 0, 0), "its visibility goes on"
    with pytest.raises(StorageFailed):
        await shop.delete(got)
    assert shop.counts() == (1, 0, 0)

    store.refuses = lambda entry: False
    assert await shop.delete(got) == [None]


async def test_when_visibility_ends_while_a_delete_fails_then_the_message_is_visible(
    shop: Shop, store: PatientStore, clock: VirtualClock
) -> None:
    await shop.make("orders.fifo")
    await shop.send_fifo("1")
    [got] = await shop.receive(visibility_s=5)
    store.hold()
    deleting = await shop.begin(shop.delete(got))
    await clock.advance(6)
    shop.counts()

    store.release(fails=True)
    await clock.settle()

    assert isinstance(deleting.exception(), StorageFailed)
    assert await shop.bodies() == ["1"]


async def test_when_a_count_that_decides_cannot_be_written_then_nothing_is_received(
    shop: Shop, store: PatientStore
) -> None:
    await shop.make("dead")
    await shop.make("watched", redrive=redrive("dead", 3))
    await shop.send("a")
    store.refuses = lambda entry: isinstance(entry, Counted)
    with pytest.raises(StorageFailed):
        await shop.receive()
    assert shop.counts() == (1, 0, 0)

    store.refuses = lambda entry: False
    assert [each.receive_count for each in await shop.receive()] == [1]


async def test_when_no_policy_looks_at_the_count_then_a_receive_does_not_wait_for_the_disk(
    shop: Shop, store: PatientStore, clock: VirtualClock
) -> None:
    await shop.send("a", "b")
    store.hold()

    kept, deleted = await shop.receive()
    assert (kept.body, deleted.body) == ("a", "b")
    store.release()
    await shop.delete(deleted)
    await clock.advance(1)

    counted = [entry for entry in store.entries if isinstance(entry, Counted)]
    assert [record.body for entry in counted for record in entry.records] == ["a"]


async def test_when_an_expiry_cannot_be_written_then_it_is_tried_again(
    shop: Shop, store: PatientStore, clock: VirtualClock
) -> None:
    await shop.make("brief", retention_s=60)
    await shop.send("a")
    store.refuses = lambda entry: isinstance(entry, Deleted)
    await clock.advance(60)
    assert len(shop.queue.state.records) == 1

    store.refuses = lambda entry: False
    await clock.advance(10)

    assert len(shop.queue.state.records) == 0


async def test_when_settings_cannot_be_written_then_they_stay(
    shop: Shop, store: PatientStore
) -> None:
    store.refuses = lambda entry: True
    other = attrs.evolve(shop.queue.settings, delay_s=9)
    with pytest.raises(StorageFailed):
        await shop.engine.configure(shop.queue, other)
    with pytest.raises(StorageFailed):
        await shop.make("new")
    with pytest.raises(StorageFailed):
        await shop.engine.purge(shop.queue)
    with pytest.raises(StorageFailed):
        await shop.engine.delete_queue(shop.queue)
    with pytest.raises(StorageFailed):
        await shop.engine.start_move(shop.queue, None)

    assert shop.queue.settings.delay_s == 0
    assert shop.engine.find(address("orders")) is shop.queue
    assert shop.engine.find(address("new")) is None
    assert shop.engine.moves(shop.queue) == []


async def test_when_two_create_the_same_queue_at_once_then_there_is_one(
    shop: Shop, store: PatientStore, clock: VirtualClock
) -> None:
    store.hold()
    one = await shop.begin(shop.make("new"))
    two = await shop.begin(shop.make("new"))
    store.release()
    await clock.settle()

    assert one.result() is two.result()


async def test_when_a_message_arrives_after_its_queue_was_deleted_then_it_is_dropped(
    shop: Shop, store: PatientStore, clock: VirtualClock
) -> None:
    store.hold()
    deleting = await shop.begin(shop.engine.delete_queue(shop.queue))
    again = await shop.begin(shop.engine.delete_queue(shop.queue))
    sending = await shop.begin(shop.send("late"))
    store.release()
    await clock.settle()

    assert deleting.done()
    assert again.done()
    assert sending.done()
    assert len(shop.queue.state.records) == 0


async def test_when_sent_while_a_purge_is_being_written_then_its_id_is_remembered(
    shop: Shop, store: PatientStore, clock: VirtualClock
) -> None:
    await shop.make("orders.fifo")
    await shop.send_fifo("before")
    store.hold()
    await shop.begin(shop.engine.purge(shop.queue))
    sending = await shop.begin(shop.send_fifo("1"))
    store.release()
    await clock.settle()

    assert await shop.send_fifo("1") == sending.result()
    await shop.send_fifo("before")

    assert await shop.bodies() == ["1", "before"], "each once"
    await clock.advance(300)
    await shop.send_fifo("1")
    assert len(shop.queue.state.records) == 3, "and for five minutes only"


async def test_when_a_purge_fails_then_ids_are_remembered_as_before(
    shop: Shop, store: PatientStore
) -> None:
    await shop.make("orders.fifo")
    await shop.send_fifo("1")
    store.refuses = lambda entry: True
    with pytest.raises(StorageFailed):
        await shop.engine.purge(shop.queue)

    store.refuses = lambda entry: False
    await shop.send_fifo("1")

    assert await shop.bodies() == ["1"]
