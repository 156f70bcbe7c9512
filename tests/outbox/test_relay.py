"""What relays do with what is committed, on an outbox of each kind."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from pump import App
from pump.clock import SYSTEM_CLOCK
from pump.errors import (
    ConnectionFailed,
    MessageTooLarge,
    PumpError,
    QueueNotFound,
    SendFailed,
    StorageFailed,
)
from pump.message import Message
from pump.observability import vocabulary
from pump.outbox import postgres as postgres_module, relay as relay_module
from pump.posting import PostOptions
from pump.stores.packing import unpack

from .conftest import Place
from .rig import (
    Order,
    RecordingGateway,
    an_app,
    relay_all,
    relaying,
    until,
    until_empty,
)

AWAY = ConnectionFailed("broker", "refused")


async def write(place: Place, app: App, *numbers: int, **options: Any) -> None:
    """Commit orders."""
    async with place.transaction() as transaction:
        for number in numbers:
            await app.post(Order(number=number), transaction=transaction, **options)


def has_sent(gateway: RecordingGateway, count: int) -> bool:
    return len(gateway.sent) == count


class Refusing:
    """A broker that refuses what a test says, for as long as it says."""

    def __init__(self, *numbers: int, queue: str | None = None, error: Exception = AWAY) -> None:
        self.numbers = numbers
        self.queue = queue
        self.error = error
        self.is_on = True
        self.count = 0

    async def __call__(self, queue: str, messages: Sequence[Message]) -> None:
        bodies = b" ".join(each.body for each in messages)
        has_one = not self.numbers or any(
            f'"number":{each},' in bodies.decode() for each in self.numbers
        )
        if self.is_on and self.queue in (None, queue) and has_one:
            self.count += 1
            raise self.error


async def test_when_rows_wait_from_before_then_a_relay_that_starts_sends_them(
    place: Place,
) -> None:
    """R79."""
    gateway = RecordingGateway()
    app = an_app(gateway, place.outbox())
    async with app:
        await write(place, app, 1, 2, 3)

    await relay_all(app)

    assert gateway.numbers() == [1, 2, 3]


async def test_when_a_post_is_relayed_then_it_is_the_message_of_a_direct_post(
    place: Place,
) -> None:
    gateway = RecordingGateway()
    app = an_app(gateway, place.outbox())
    options = PostOptions(group="g", correlation_id="c", reply_to="r", headers={"a": "b"})
    fields = {
        "group": options.group,
        "correlation_id": options.correlation_id,
        "reply_to": options.reply_to,
        "headers": options.headers,
    }

    async with app, relaying(app):
        await app.post(Order(number=1), **fields)
        await write(place, app, 1, **fields)
        await until(lambda: len(gateway.sent) == 2)

    direct, relayed = (each.message for each in gateway.sent)
    same = ("body", "type", "content_type", "group", "correlation_id", "reply_to", "headers")
    assert [getattr(direct, each) for each in same] == [getattr(relayed, each) for each in same]
    assert relayed.deduplication_id == relayed.id


async def test_when_a_deduplication_id_is_given_then_it_is_kept(place: Place) -> None:
    gateway = RecordingGateway()
    app = an_app(gateway, place.outbox())
    async with app:
        await write(place, app, 1, deduplication_id="mine")

    await relay_all(app)

    assert gateway.sent[0].message.deduplication_id == "mine"


async def test_when_a_destination_is_dead_then_it_holds_up_no_other(place: Place) -> None:
    """R79."""
    gateway = RecordingGateway()
    gateway.refuse = dead = Refusing(queue="dead", error=QueueNotFound("dead"))
    app = an_app(gateway, outbox := place.outbox())

    async with app, relaying(app):
        await write(place, app, 1, 2, queue="dead")
        await until(lambda: dead.count > 0)
        await write(place, app, 3, 4)
        await until(lambda: len(gateway.sent) == 2)
        waiting = {each.destination: each.waiting for each in await outbox.stats()}
        assert waiting.get("dead") == 2

        dead.is_on = False
        await until(lambda: len(gateway.sent) == 4)

    assert gateway.numbers("orders") == [3, 4]
    assert gateway.numbers("dead") == [1, 2]


async def test_when_a_destination_does_not_answer_then_it_holds_up_no_other(place: Place) -> None:
    gateway = RecordingGateway()
    hung = asyncio.Event()

    async def hang(queue: str, messages: Sequence[Message]) -> None:
        if queue.startswith("hung"):
            hung.set()
            await asyncio.Event().wait()

    gateway.refuse = hang
    app = an_app(gateway, place.outbox())

    async with app:
        relay = app.relay()
        running = asyncio.create_task(relay.run())
        for number in range(4):
            await write(place, app, number, queue=f"hung{number}")
        await hung.wait()
        await write(place, app, 9)
        await until(lambda: len(gateway.sent) == 1)
        running.cancel()
        await asyncio.wait([running])

    assert gateway.numbers() == [9]


async def test_when_many_destinations_do_not_answer_then_one_that_does_goes_on(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More of them than the outbox has connections, none of which has failed yet."""
    monkeypatch.setattr(relay_module, "SEND_S", 3_600.0)
    gateway = RecordingGateway()
    hung: set[str] = set()

    async def hang(queue: str, messages: Sequence[Message]) -> None:
        if queue.startswith("hung"):
            hung.add(queue)
            await asyncio.Event().wait()

    gateway.refuse = hang
    app = an_app(gateway, outbox := place.outbox())
    async with app:
        running = asyncio.create_task(app.relay().run())
        await write(place, app, 0)
        await until(partial(has_sent, gateway, 1))
        async with place.transaction() as transaction:
            for number in range(8):
                order = Order(number=number)
                await app.post(order, transaction=transaction, queue=f"hung{number}")
        await until(lambda: len(hung) == min(8, (outbox.max_taken or 9) - 1))
        for number in range(1, 4):
            await write(place, app, number)
            await until(partial(has_sent, gateway, number + 1))
        running.cancel()
        await asyncio.wait([running])

    assert gateway.numbers() == [0, 1, 2, 3]


async def test_when_a_message_can_never_be_sent_then_it_is_set_aside_and_others_go(
    place: Place,
) -> None:
    """R79."""
    gateway = RecordingGateway()
    gateway.refuse = Refusing(2, error=MessageTooLarge("orders", 9, 8))
    app = an_app(gateway, outbox := place.outbox())

    async with app, relaying(app):
        await write(place, app, 1, 2, 3, group="g")
        await until_empty(outbox)
        [aside] = await outbox.set_aside()
        [stats] = await outbox.stats()

    assert gateway.numbers() == [1, 3]
    assert aside.destination == "orders"
    assert "MessageTooLarge" in aside.reason
    assert (stats.waiting, stats.set_aside) == (0, 1)
    assert app.counters.value(vocabulary.OUTBOX_SET_ASIDE, queue="orders") == 1
    assert app.counters.value(vocabulary.OUTBOX_RELAYED, queue="orders") == 2


async def test_when_what_was_set_aside_is_retried_then_it_is_sent(place: Place) -> None:
    gateway = RecordingGateway()
    gateway.refuse = poison = Refusing(1, 2, error=MessageTooLarge("orders", 9, 8))
    app = an_app(gateway, outbox := place.outbox())

    async with app, relaying(app):
        await write(place, app, 1, 2)
        await until_empty(outbox)
        [first, _] = await outbox.set_aside()
        poison.is_on = False
        assert await outbox.retry([first.id]) == 1
        await until(lambda: len(gateway.sent) == 1)
        assert gateway.sent[0].message.id == first.id
        assert await outbox.retry(None) == 1
        await until(lambda: len(gateway.sent) == 2)
        assert await outbox.set_aside() == []


async def test_when_what_was_set_aside_is_dropped_then_it_is_gone(place: Place) -> None:
    gateway = RecordingGateway()
    gateway.refuse = Refusing(error=MessageTooLarge("orders", 9, 8))
    app = an_app(gateway, outbox := place.outbox())

    async with app, relaying(app):
        await write(place, app, 1, 2)
        await until_empty(outbox)
        [first, second] = await outbox.set_aside()
        assert await outbox.drop(["another"]) == 0
        assert await outbox.drop([first.id]) == 1
        assert [each.id for each in await outbox.set_aside()] == [second.id]
        assert await outbox.drop(None) == 1
        assert await outbox.stats() == []


async def test_when_a_row_is_not_what_was_posted_then_it_is_set_aside(place: Place) -> None:
    gateway = RecordingGateway()
    app = an_app(gateway, outbox := place.outbox())
    async with app:
        await write(place, app, 1, 2)
        place.execute("UPDATE @outbox SET message = ? WHERE position = 1", b"what is this")

        async with relaying(app):
            await until_empty(outbox)
        [aside] = await outbox.set_aside()

    assert gateway.numbers() == [2]
    assert "MappingError" in aside.reason


async def test_when_an_error_is_unknown_then_the_message_is_tried_again_and_set_aside(
    place: Place,
) -> None:
    """Four are refused in all: the fifth time it is known to be hopeless."""
    gateway = RecordingGateway()
    gateway.refuse = odd = Refusing(1, error=PumpError("what is this"))
    app = an_app(gateway, outbox := place.outbox())
    async with app:
        await write(place, app, 1, 2)
        place.execute("UPDATE @outbox SET attempts = 3 WHERE position = 1")

        async with relaying(app):
            await until(lambda: gateway.numbers() == [2])
            await until_empty(outbox)
        [aside] = await outbox.set_aside()

    assert odd.count >= 2
    assert "what is this" in aside.reason


async def test_when_two_relays_run_then_a_group_keeps_its_order_and_nothing_is_doubled(
    place: Place,
) -> None:
    """R79."""
    gateway = RecordingGateway()
    gateway.refuse = Refusing(7, error=MessageTooLarge("orders", 9, 8))
    first, second = an_app(gateway, place.outbox()), an_app(gateway, outbox := place.outbox())
    last = 200

    async with first, second, relaying(first), relaying(second):
        for number in range(0, last, 5):
            await write(place, first, *range(number, number + 5), group=f"g{number % 3}")
        await until_empty(outbox)

    by_group: dict[str | None, list[int]] = {}
    for each, number in zip(gateway.sent, gateway.numbers(), strict=True):
        by_group.setdefault(each.message.group, []).append(number)
    assert sorted(gateway.numbers()) == [each for each in range(last) if each != 7]
    assert all(numbers == sorted(numbers) for numbers in by_group.values())


async def test_when_a_confirmation_cannot_be_noted_then_the_same_message_is_sent_again(
    place: Place,
) -> None:
    gateway = RecordingGateway()
    app = an_app(gateway, outbox := place.outbox())

    async def lose_the_answer(queue: str, messages: Sequence[Message]) -> None:
        gateway.after = gateway.refuse
        raise TimeoutError

    gateway.after = lose_the_answer
    async with app, relaying(app):
        await write(place, app, 1)
        await until_empty(outbox)

    [once, again] = (each.message for each in gateway.sent)
    assert (once.id, once.deduplication_id) == (again.id, again.deduplication_id)


async def test_when_a_relay_has_ended_then_another_one_of_the_app_is_told_of_commits(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that looks too seldom to find them without."""
    monkeypatch.setattr(relay_module, "_POLL_S", 3_600.0)
    gateway = RecordingGateway()
    app = an_app(gateway, outbox := place.outbox())

    async with app:
        async with relaying(app):
            await until(lambda: outbox.hears)
        async with relaying(app):
            for number in range(3):
                await write(place, app, number)
                await until(partial(has_sent, gateway, number + 1))

    assert gateway.numbers() == [0, 1, 2]


async def test_when_an_app_has_two_relays_then_either_is_told_of_commits_after_the_other_ends(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relay_module, "_POLL_S", 3_600.0)
    gateway = RecordingGateway()
    app = an_app(gateway, outbox := place.outbox())

    async with app, relaying(app):
        async with relaying(app):
            await until(lambda: outbox.hears)
            await write(place, app, 0)
            await until(lambda: len(gateway.sent) == 1)
            await until_empty(outbox)
        for number in range(1, 4):
            await write(place, app, number)
            await until(partial(has_sent, gateway, number + 1))

    assert gateway.numbers() == [0, 1, 2, 3]


async def test_when_removing_is_refused_then_what_was_sent_is_not_sent_again(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    gateway = RecordingGateway()
    outbox: Any = place.outbox()
    app = an_app(gateway, outbox)
    settle, refusal_count = outbox.settled, 0

    async def refuse(*arguments: Any) -> None:
        nonlocal refusal_count
        refusal_count += 1
        if refusal_count <= 3:
            raise StorageFailed("database", "the disk is full")
        await settle(*arguments)

    monkeypatch.setattr(outbox, "settled", refuse)
    async with app:
        await write(place, app, 1, 2, group="g")
        async with relaying(app):
            await until(lambda: refusal_count > 0)
            await write(place, app, 3, group="g")
            await until_empty(outbox)

    assert gateway.numbers() == [1, 2, 3]
    assert app.counters.value(vocabulary.OUTBOX_RELAYED, queue="orders") == 3


async def test_when_a_relay_is_cancelled_during_a_send_then_the_next_one_sends_it(
    place: Place,
) -> None:
    gateway = RecordingGateway()
    sending = asyncio.Event()

    async def hang(queue: str, messages: Sequence[Message]) -> None:
        sending.set()
        await asyncio.Event().wait()

    gateway.refuse = hang
    app = an_app(gateway, place.outbox())
    async with app:
        await write(place, app, 1)
        running = asyncio.create_task(app.relay().run())
        await sending.wait()
        running.cancel()
        await asyncio.wait([running])
        assert running.cancelled()

        gateway.refuse = RecordingGateway().refuse
    await relay_all(app)

    assert gateway.numbers() == [1]


async def test_when_a_relay_is_cancelled_at_any_moment_then_nothing_is_lost(place: Place) -> None:
    """R79."""
    gateway = RecordingGateway()
    app = an_app(gateway, outbox := place.outbox())

    async with app:
        await write(place, app, *range(20))
        for tick_count in range(0, 100, 4):
            running = asyncio.create_task(app.relay().run())
            for _ in range(tick_count):
                await SYSTEM_CLOCK.sleep(0.0005)
            running.cancel()
            with suppress(asyncio.CancelledError):
                await running
            assert running.cancelled()
        async with relaying(app):
            await until_empty(outbox)

    assert set(gateway.numbers()) == set(range(20))


async def test_when_a_relay_drains_then_what_is_being_sent_is_settled(place: Place) -> None:
    gateway = RecordingGateway()
    sending, answered = asyncio.Event(), asyncio.Event()

    async def wait(queue: str, messages: Sequence[Message]) -> None:
        sending.set()
        await answered.wait()

    gateway.refuse = wait
    app = an_app(gateway, outbox := place.outbox())
    async with app:
        await write(place, app, 1)
        relay = app.relay()
        running = asyncio.create_task(relay.run())
        await sending.wait()
        relay.drain()
        await write(place, app, 2)
        answered.set()
        await running
        [stats] = await outbox.stats()

    assert gateway.numbers() == [1]
    assert stats.waiting == 1


async def test_when_what_was_sent_is_kept_then_it_can_be_looked_at_until_it_is_pruned(
    place: Place,
) -> None:
    gateway = RecordingGateway()
    app = an_app(gateway, outbox := place.outbox(keep=timedelta(hours=1)))
    async with app:
        await write(place, app, 1, 2)
        async with relaying(app):
            await until_empty(outbox)

        [(first,), _] = place.execute("SELECT message FROM @outbox_sent ORDER BY position")
        assert unpack(bytes(first)).body == gateway.sent[0].message.body
        await outbox.prune()
        assert len(place.execute("SELECT 1 FROM @outbox_sent")) == 2
        place.execute(
            "UPDATE @outbox_sent SET sent_at = sent_at - interval '2 hours' WHERE position = 1"
            if "postgres" in outbox.name
            else "UPDATE @outbox_sent SET sent_at_s = sent_at_s - 7200 WHERE position = 1"
        )
        await outbox.prune()
        assert place.execute("SELECT position FROM @outbox_sent") == [(2,)]


async def test_when_a_delay_was_asked_for_then_it_counts_from_the_post(place: Place) -> None:
    gateway = RecordingGateway()
    app = an_app(gateway, place.outbox())
    async with app:
        await write(place, app, 1, delay=timedelta(hours=1))
        place.execute(
            "UPDATE @outbox SET due_at = due_at - interval '30 minutes'"
            if "postgres" in type(app.outbox).__name__.lower()
            else "UPDATE @outbox SET due_at_s = due_at_s - 1800"
        )
    await relay_all(app)

    [sent] = gateway.sent
    assert 1_700 < sent.delay_s <= 1_801


async def test_when_calls_are_slow_then_a_batch_is_settled_before_all_are_made(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relay_module, "BATCH_S", 0.1)
    gateway = RecordingGateway()
    left = []
    app = an_app(gateway, outbox := place.outbox())

    async def be_slow(queue: str, messages: Sequence[Message]) -> None:
        left.append(sum(each.waiting for each in await outbox.stats()))
        await SYSTEM_CLOCK.sleep(0.06)

    gateway.refuse = be_slow
    async with app:
        for number in range(10):
            await write(place, app, number, delay=timedelta(minutes=number))
        async with relaying(app):
            await until_empty(outbox)

    assert sorted(gateway.numbers()) == list(range(10))
    assert left[-1] < 10


def test_a_batch_ends_before_its_database_takes_its_relay_for_frozen() -> None:
    assert relay_module.BATCH_S + relay_module.SEND_S < postgres_module._FROZEN_S


async def test_when_it_is_cleared_then_what_was_deposited_is_sent_at_once(place: Place) -> None:
    gateway = RecordingGateway()
    app = an_app(gateway, outbox := place.outbox())

    async with app:
        async with place.transaction() as transaction:
            first = await app.processor.deposit(Order(number=1), transaction=transaction)
            second = await app.processor.deposit(Order(number=2), transaction=transaction)
        await app.processor.clear([second])
        assert gateway.numbers() == [2]
        await app.processor.clear([first, second, "of another"])
        assert gateway.numbers() == [2, 1]
        assert await outbox.stats() == []


async def test_when_it_cannot_be_cleared_then_the_error_says_why_and_it_waits(
    place: Place,
) -> None:
    gateway = RecordingGateway()
    gateway.refuse = Refusing()
    app = an_app(gateway, outbox := place.outbox())

    async with app:
        async with place.transaction() as transaction:
            id_ = await app.processor.deposit(Order(number=1), transaction=transaction)
        with pytest.raises(ConnectionFailed):
            await app.processor.clear([id_])
        [stats] = await outbox.stats()

    assert stats.waiting == 1


async def test_when_what_is_cleared_is_set_aside_then_the_error_says_why(place: Place) -> None:
    gateway = RecordingGateway()
    gateway.refuse = Refusing(1, error=MessageTooLarge("orders", 9, 8))
    app = an_app(gateway, outbox := place.outbox())

    async with app:
        async with place.transaction() as transaction:
            ids = [
                await app.processor.deposit(Order(number=each), transaction=transaction)
                for each in (1, 2)
            ]
        with pytest.raises(SendFailed, match="MessageTooLarge"):
            await app.processor.clear(ids)
        assert [each.id for each in await outbox.set_aside()] == ids[:1]

    assert gateway.numbers() == [2]
