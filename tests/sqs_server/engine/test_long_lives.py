"""Long lives: what was once there leaves nothing behind, in memory or on disk."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest

from gateways.sqs_server.engine import SqsStore, queue as queue_module
from gateways.sqs_server.engine.entries import Deleted, Reserved
from gateways.sqs_server.engine.record import SqsRecord
from gateways.sqs_server.engine.state import SqsQueueState
from gateways.sqs_server.errors import SqsError
from gateways.sqs_server.model import SqsQueueSettings
from pump.errors import StorageFailed
from pump.testing.virtual_clock import VirtualClock

from .shop import PatientStore, Shop, address


async def test_when_many_receives_are_over_then_the_agenda_forgets_them(shop: Shop) -> None:
    await shop.make("orders")
    await shop.send("stays")
    await shop.receive(1, visibility_s=600)

    for _ in range(200):
        await shop.send("a")
        await shop.delete(*await shop.receive(1))

    assert len(shop.queue.state.timers) < 130


async def test_when_a_long_group_is_worked_off_then_its_order_holds(shop: Shop) -> None:
    await shop.make("orders.fifo")
    await shop.send_fifo(*map(str, range(100)))
    order: list[str] = []

    while received := await shop.receive(7):
        # The last one of each batch comes back, and those before it are done.
        await shop.delete(*received[:-1])
        if len(received) > 1:
            await shop.change(received[-1], 0)
            order += [each.body for each in received[:-1]]
        else:
            await shop.delete(received[0])
            order.append(received[0].body)

    assert order == [str(number) for number in range(100)]
    assert shop.counts() == (0, 0, 0)


async def test_when_old_messages_are_moved_in_and_deleted_again_then_none_is_remembered() -> None:
    state = SqsQueueState(SqsQueueSettings(address=address("dead"), retention_s=60))
    state.add([SqsRecord(1, 1, "young", None, None, None, 1_000.0)])

    for seq in range(2, 500):
        record = SqsRecord(seq, seq, "old", None, None, None, 1_000.0 - seq)
        state.add([record])
        state.send_to_limbo([record])
        state.remove([record])
    state.add([SqsRecord(500, 500, "elder", None, None, None, 990.0)])

    assert state.ages.oldest_s() == 990.0
    assert [record.body for record in state.ages.sent_before(995.0)] == ["elder"]
    assert len(vars(state.ages)["_elders"]) < 100


async def test_when_keys_are_over_then_they_leave_the_file(
    tmp_path: Path, clock: VirtualClock
) -> None:
    shop = await Shop.open(clock, SqsStore(tmp_path))
    await shop.make("orders.fifo")
    await shop.send_fifo("1")
    await clock.advance(300)
    await shop.send_fifo("2")
    await shop.engine.aclose()

    again = await Shop.open(clock, SqsStore(tmp_path))
    assert len(again.use("orders.fifo").state.deduplication.items()) == 1
    await again.engine.aclose()


async def test_when_a_fifo_message_has_no_id_then_it_is_never_a_duplicate(shop: Shop) -> None:
    await shop.make("orders.fifo")
    await shop.send("same", "same", group="g")

    assert await shop.bodies() == ["same", "same"]


async def test_when_too_many_are_in_flight_then_a_waiting_receive_is_refused(
    shop: Shop, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    await shop.make("orders")
    waiting = await shop.begin(shop.receive(wait_s=20))
    monkeypatch.setattr(queue_module, "MAX_IN_FLIGHT_COUNT", 0)

    await shop.send("a")
    await clock.settle()

    assert isinstance(waiting.exception(), SqsError)
    assert shop.counts() == (1, 0, 0)


async def test_when_numbers_cannot_be_reserved_then_they_are_reserved_again(
    clock: VirtualClock,
) -> None:
    store = PatientStore()
    shop = await Shop.open(clock, store)
    store.refuses = lambda entry: True
    with pytest.raises(StorageFailed):
        await shop.make("orders")
    store.refuses = lambda entry: False

    await shop.make("orders")

    assert any(isinstance(entry, Reserved) for entry in store.entries)
    await shop.engine.aclose()


@pytest.mark.parametrize("name", ["brief", "brief.fifo"])
async def test_when_a_delayed_messages_expiry_fails_then_it_is_delayed_as_before(
    clock: VirtualClock, name: str
) -> None:
    store = PatientStore()
    shop = await Shop.open(clock, store)
    await shop.make(name, retention_s=60, delay_s=100)
    await shop.send_fifo("1")
    store.refuses = lambda entry: isinstance(entry, Deleted)
    await clock.advance(61)

    assert shop.counts() == (0, 0, 1)
    store.refuses = lambda entry: False
    await clock.advance(20)
    assert shop.counts() == (0, 0, 0)
    await shop.engine.aclose()


async def test_when_visible_fifo_messages_expire_then_the_rest_of_the_group_is_delivered(
    shop: Shop, clock: VirtualClock
) -> None:
    await shop.make("brief.fifo", retention_s=60)
    await shop.send_fifo("old 1", "old 2")
    await clock.advance(30)
    await shop.send_fifo("young")

    await clock.advance(31)

    assert await shop.bodies() == ["young"]


async def test_when_queues_were_deleted_long_ago_then_their_names_are_forgotten(
    shop: Shop, clock: VirtualClock
) -> None:
    for number in range(20):
        await shop.engine.delete_queue(await shop.make(f"queue{number}"))
    await clock.advance(30)
    await shop.engine.delete_queue(await shop.make("queue0"))
    await clock.advance(30)

    await shop.engine.delete_queue(await shop.make("last"))

    assert len(vars(shop.engine)["_deleted_at_s"]) == 2
    assert shop.engine.was_deleted_recently(address("queue0"))
    assert not shop.engine.was_deleted_recently(address("queue1"))


def bodies_in_memory(prefix: str) -> int:
    gc.collect()
    # By type, not isinstance: that asks a weak proxy of somebody's dead object, and raises.
    records = [each for each in gc.get_objects() if type(each) is SqsRecord]
    return sum(record.body.startswith(prefix) for record in records)


@pytest.mark.parametrize("visibility_s", [0, 30])
async def test_when_what_an_attempt_took_is_deleted_then_it_is_forgotten(
    shop: Shop, clock: VirtualClock, visibility_s: int
) -> None:
    await shop.make("orders.fifo")
    for number in range(20):
        await shop.send_fifo(f"attempted {number}")
        [got] = await shop.receive(visibility_s=visibility_s, attempt_id=f"attempt {number}")
        if not visibility_s:
            [got] = await shop.receive()
        await shop.delete(got)
    # Counts are written in a moment.
    await clock.advance(1)

    assert bodies_in_memory("attempted") == 0
    assert len(shop.queue.state.attempts) == 0


async def test_when_an_attempt_was_repeated_then_it_is_forgotten_with_the_first_answer(
    shop: Shop, clock: VirtualClock
) -> None:
    await shop.make("orders.fifo")
    await shop.send_fifo("1")
    [first] = await shop.receive(visibility_s=600, attempt_id="a")
    await clock.advance(200)
    [second] = await shop.receive(visibility_s=600, attempt_id="a")
    assert second.id == first.id

    await clock.advance(100)

    assert await shop.receive(attempt_id="a") == []
    assert len(shop.queue.state.attempts) == 0


async def test_when_part_of_an_answer_is_deleted_then_its_attempt_takes_anew(
    shop: Shop,
) -> None:
    await shop.make("orders.fifo")
    await shop.send_fifo("1", "2", group="g")
    first, _ = await shop.receive(attempt_id="a")
    await shop.delete(first)
    await shop.send_fifo("3", group="h")

    assert [each.body for each in await shop.receive(attempt_id="a")] == ["3"]
    assert [each.body for each in await shop.receive(attempt_id="a")] == ["3"]
