"""Move tasks: from a dead-letter queue back, in the background, nothing lost or doubled."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gateways.sqs_server.engine import MoveStatus, SqsStore
from gateways.sqs_server.engine.entries import MessagesMoved, TaskEndedEntry
from pump.errors import StorageFailed
from pump.testing.virtual_clock import EPOCH_S, VirtualClock

from .shop import PatientStore, Shop, redrive


@pytest.fixture(autouse=True)
async def orders(shop: Shop) -> None:
    await make_dead_letters(shop, "a", "b", "c")


async def make_dead_letters(shop: Shop, *bodies: str) -> None:
    """Leave the shop at a dead-letter queue with these messages."""
    await shop.make("other")
    await shop.make("dead")
    await shop.make("orders", redrive=redrive("dead", 1))
    await shop.send(*bodies)
    await shop.receive(visibility_s=0)
    await shop.receive()
    shop.use("dead")


async def test_when_no_target_is_named_then_messages_go_back_to_where_they_came_from(
    shop: Shop, clock: VirtualClock
) -> None:
    await clock.advance(5)
    task = await shop.engine.start_move(shop.queue, None)
    assert (task.to_move, task.status) == (3, MoveStatus.RUNNING)
    await clock.settle()

    assert (task.status, task.moved, task.target) == (MoveStatus.COMPLETED, 3, None)
    assert shop.counts() == (0, 0, 0)
    shop.use("orders")
    got = await shop.receive()
    assert [each.body for each in got] == ["a", "b", "c"]
    assert {(each.receive_count, each.dead_letter_source) for each in got} == {(1, None)}
    assert {each.sent_at_s for each in got} == {EPOCH_S + 5}, "new messages"


async def test_when_a_target_is_named_then_messages_go_there(
    shop: Shop, clock: VirtualClock
) -> None:
    dead = shop.queue
    await shop.send("never was elsewhere")
    other = shop.use("other")
    waiting = await shop.begin(shop.receive(1, wait_s=20))

    task = await shop.engine.start_move(dead, other)
    await clock.settle()

    assert task.target == other.address
    assert [each.body for each in waiting.result()] == ["a"]
    assert await shop.bodies() == ["b", "c", "never was elsewhere"]
    assert shop.engine.moves(dead) == [task]


async def test_when_there_is_a_rate_then_so_many_are_moved_a_second(
    shop: Shop, clock: VirtualClock
) -> None:
    task = await shop.engine.start_move(shop.queue, None, rate=1)
    await clock.settle()
    assert task.moved == 1

    await clock.advance(1)
    assert task.moved == 2
    await clock.advance(2)
    assert (task.moved, task.status) == (3, MoveStatus.COMPLETED)


async def test_when_cancelled_then_the_rest_stays(shop: Shop, clock: VirtualClock) -> None:
    task = await shop.engine.start_move(shop.queue, None, rate=1)
    await clock.advance(1)

    assert await shop.engine.cancel_move(task) == 2

    assert task.status is MoveStatus.CANCELLED
    await clock.advance(10)
    assert shop.counts() == (1, 0, 0)
    assert await shop.engine.cancel_move(task) == 2


async def test_when_messages_are_in_flight_then_they_are_not_moved(
    shop: Shop, clock: VirtualClock
) -> None:
    await shop.receive(1)

    task = await shop.engine.start_move(shop.queue, None)
    await clock.settle()

    assert (task.to_move, task.moved) == (2, 2)
    assert shop.counts() == (0, 1, 0)


async def test_when_the_target_is_deleted_meanwhile_then_the_task_fails_and_loses_nothing(
    shop: Shop, clock: VirtualClock
) -> None:
    dead = shop.queue
    other = shop.use("other")
    task = await shop.engine.start_move(dead, other, rate=1)
    await clock.settle()

    await shop.engine.delete_queue(other)
    await clock.advance(1)

    assert task.status is MoveStatus.FAILED
    assert task.failure_reason == "AWS.SimpleQueueService.NonExistentQueue"
    shop.use("dead")
    assert shop.counts() == (2, 0, 0)


async def test_when_the_source_is_made_anew_then_its_old_tasks_leave_it_alone(
    shop: Shop, clock: VirtualClock
) -> None:
    dead = shop.queue
    task = await shop.engine.start_move(dead, None, rate=1)
    await clock.settle()
    await shop.engine.delete_queue(dead)
    await shop.make("dead")
    await shop.send("new", "new")

    await clock.advance(5)

    assert task.moved == 1
    assert shop.engine.moves(shop.queue) == []
    assert shop.counts() == (2, 0, 0)


async def test_when_a_message_has_no_source_then_the_task_fails_there(
    shop: Shop, clock: VirtualClock
) -> None:
    await shop.send("sent here")

    task = await shop.engine.start_move(shop.queue, None)
    await clock.settle()

    assert (task.status, task.moved) == (MoveStatus.FAILED, 3)
    assert task.failure_reason == "CouldNotDetermineMessageSource"
    assert await shop.bodies() == ["sent here"]


async def test_when_a_move_cannot_be_written_then_it_is_tried_again(clock: VirtualClock) -> None:
    store = PatientStore()
    shop = await Shop.open(clock, store)
    await make_dead_letters(shop, "a")
    store.refuses = lambda entry: isinstance(entry, MessagesMoved)
    task = await shop.engine.start_move(shop.queue, None)
    await clock.settle()
    assert (task.moved, shop.counts()) == (0, (1, 0, 0))

    store.refuses = lambda entry: False
    await clock.advance(1)

    assert (task.moved, task.status) == (1, MoveStatus.COMPLETED)
    await shop.engine.aclose()


async def test_when_many_tasks_were_started_then_the_last_ten_are_known(
    shop: Shop, clock: VirtualClock
) -> None:
    started = []
    for _ in range(12):
        started.append(await shop.engine.start_move(shop.queue, None))
        await clock.settle()

    assert shop.engine.moves(shop.queue) == started[:1:-1]


async def test_when_the_server_is_started_again_then_a_task_goes_on(
    tmp_path: Path, clock: VirtualClock
) -> None:
    """T4."""
    shop = await Shop.open(clock, SqsStore(tmp_path))
    await make_dead_letters(shop, "a", "b", "c", "d")
    task = await shop.engine.start_move(shop.queue, None, rate=1)
    await clock.advance(1)
    assert task.moved == 2
    await shop.engine.aclose()

    again = await Shop.open(clock, SqsStore(tmp_path))
    dead = again.use("dead")
    [resumed] = again.engine.moves(dead)
    assert (resumed.handle, resumed.started_at_ms) == (task.handle, task.started_at_ms)
    await clock.advance(5)

    assert (resumed.moved, resumed.status) == (4, MoveStatus.COMPLETED)
    again.use("orders")
    assert await again.bodies() == ["a", "b", "c", "d"]
    await again.engine.aclose()


@pytest.fixture
def store() -> PatientStore:
    return PatientStore()


@pytest.fixture
async def written(clock: VirtualClock, store: PatientStore) -> AsyncIterator[Shop]:
    """A shop whose writes can be watched."""
    shop = await Shop.open(clock, store)
    await make_dead_letters(shop, "a", "b", "c")
    yield shop
    await shop.engine.aclose()


async def test_when_who_cancels_hangs_up_then_the_task_ends_nevertheless(
    written: Shop, store: PatientStore, clock: VirtualClock
) -> None:
    task = await written.engine.start_move(written.queue, None, rate=1)
    await clock.settle()
    store.hold()
    cancelling = await written.begin(written.engine.cancel_move(task))
    again = await written.begin(written.engine.cancel_move(task))
    cancelling.cancel()
    await clock.settle()
    assert (task.status, task.is_active) == (MoveStatus.CANCELLING, True)

    store.release()
    await clock.settle()

    assert (task.status, task.is_active) == (MoveStatus.CANCELLED, False)
    assert again.result() == 1
    await clock.advance(5)
    assert written.counts() == (2, 0, 0)


async def test_when_a_cancellation_cannot_be_written_then_it_says_so_and_the_task_goes_on(
    written: Shop, store: PatientStore, clock: VirtualClock
) -> None:
    """T3: a restart must not find a task running that was said to be cancelled."""
    task = await written.engine.start_move(written.queue, None, rate=1)
    await clock.settle()
    store.refuses = lambda entry: isinstance(entry, TaskEndedEntry)
    with pytest.raises(StorageFailed):
        await written.engine.cancel_move(task)
    assert task.status is MoveStatus.RUNNING

    store.refuses = lambda entry: False
    await clock.settle()
    assert task.moved == 2
    assert await written.engine.cancel_move(task) == 2

    await clock.advance(5)
    assert (task.status, task.moved) == (MoveStatus.CANCELLED, 2)


async def test_when_the_source_goes_while_a_cancellation_fails_then_the_task_is_over(
    written: Shop, store: PatientStore, clock: VirtualClock
) -> None:
    task = await written.engine.start_move(written.queue, None, rate=1)
    await clock.settle()
    store.refuses = lambda entry: isinstance(entry, TaskEndedEntry)
    store.hold()
    await written.begin(written.engine.delete_queue(written.queue))
    cancelling = await written.begin(written.engine.cancel_move(task))
    store.release()
    await clock.settle()
    await written.make("dead")
    await written.send("new")

    await clock.advance(5)

    assert isinstance(cancelling.exception(), StorageFailed)
    assert task.moved == 1
    assert written.counts() == (1, 0, 0)


async def test_when_the_end_of_a_task_cannot_be_written_then_it_ends_later(
    written: Shop, store: PatientStore, clock: VirtualClock
) -> None:
    store.refuses = lambda entry: isinstance(entry, TaskEndedEntry)
    task = await written.engine.start_move(written.queue, None)
    await clock.settle()
    assert (task.moved, task.status) == (3, MoveStatus.RUNNING)

    store.refuses = lambda entry: False
    await clock.advance(1)

    assert task.status is MoveStatus.COMPLETED


async def test_when_closed_while_a_task_is_being_cancelled_then_that_is_written_first(
    written: Shop, store: PatientStore, clock: VirtualClock
) -> None:
    task = await written.engine.start_move(written.queue, None, rate=1)
    await clock.settle()
    store.hold()
    cancelling = await written.begin(written.engine.cancel_move(task))
    closing = await written.begin(written.engine.aclose())
    assert not closing.done()

    store.release()
    await clock.settle()

    assert closing.done()
    assert (cancelling.result(), task.status) == (1, MoveStatus.CANCELLED)
