"""Consumer: one queue by hand; every refusal is raised."""

from __future__ import annotations

import asyncio
import contextlib
import pickle
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta
from typing import Any

import attrs
import pytest

from pump import App, RejectionReason, Subscription
from pump.consumer import Consumer
from pump.errors import ConfigurationError, ConnectionFailed, InvalidReceipt, QueueNotFound
from pump.events import Event, LeaseLostEvent, OutcomeEvent
from pump.outcome import Fate
from pump.stores.spill import MemorySpill
from pump.testing.builders import a_message
from pump.testing.virtual_clock import VirtualClock

from .faulty_gateway import FaultyGateway

NOW = timedelta(0)


class Bench:
    """A consumer of `orders` in an open app."""

    def __init__(self) -> None:
        self.clock = VirtualClock(chance=0.0)
        self.gateway = FaultyGateway(self.clock)
        self.spill = MemorySpill()
        self.events: list[Event] = []
        self.app = App(
            self.gateway, clock=self.clock, spill=self.spill, observers=[self.events.append]
        )
        self.subscription = Subscription(
            queue="orders", request=dict, dead_letter_queue="dead", invalid_queue="bad"
        )
        self.consumer: Consumer

    async def send(self, *ids: str) -> None:
        for id_ in ids:
            await self.app.post(a_message(id=id_), queue="orders")

    @property
    def outcomes(self) -> list[OutcomeEvent]:
        return [event for event in self.events if isinstance(event, OutcomeEvent)]

    async def ids(self, queue: str) -> list[str]:
        messages = await self.gateway.admin().peek(queue, max_count=100)
        return [message.id for message in messages]


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    bench = Bench()
    async with bench.app, bench.app.consumer(bench.subscription) as consumer:
        bench.consumer = consumer
        yield bench


async def test_when_a_consumer_is_opened_then_its_queues_are_there(bench: Bench) -> None:
    assert [stats.name for stats in await bench.gateway.admin().queues()] == [
        "bad",
        "dead",
        "orders",
    ]
    assert bench.consumer.subscription is bench.subscription


async def test_when_messages_wait_then_receive_returns_up_to_so_many(bench: Bench) -> None:
    """R3."""
    await bench.send("1", "2", "3")

    first = await bench.consumer.receive(2)
    second = await bench.consumer.receive()

    assert [delivery.message.id for delivery in first] == ["1", "2"]
    assert [delivery.message.id for delivery in second] == ["3"]


async def test_when_the_queue_is_empty_then_receive_returns_nothing_after_its_wait(
    bench: Bench,
) -> None:
    """R4."""
    receiving = asyncio.create_task(bench.consumer.receive(wait=timedelta(seconds=3)))
    await bench.clock.advance(2.9)
    assert not receiving.done()
    await bench.clock.advance(0.1)
    assert await receiving == []

    by_default = asyncio.create_task(bench.consumer.receive())
    await bench.clock.advance(19.9)
    assert not by_default.done()
    await bench.clock.advance(0.1)
    assert await by_default == []


async def test_when_acked_then_the_message_is_gone_and_a_second_ack_is_refused(
    bench: Bench,
) -> None:
    """R5, R6."""
    await bench.send("1")
    [delivery] = await bench.consumer.receive()

    await bench.consumer.ack(delivery)

    with pytest.raises(InvalidReceipt) as caught:
        await bench.consumer.ack(delivery)
    assert caught.value.receipt == delivery.receipt
    await bench.clock.advance(100)
    assert await bench.consumer.receive(wait=NOW) == []


async def test_when_the_lease_ran_out_then_every_settlement_is_refused(bench: Bench) -> None:
    """R6, R9."""
    await bench.send("1")
    [delivery] = await bench.consumer.receive()
    await bench.clock.advance(30)

    for settlement in (
        bench.consumer.ack(delivery),
        bench.consumer.defer(delivery),
        bench.consumer.abandon(delivery),
        bench.consumer.extend(delivery),
    ):
        with pytest.raises(InvalidReceipt):
            await settlement
    [again] = await bench.consumer.receive(wait=NOW)
    assert again.receipt != delivery.receipt
    assert again.attempt == 2


async def test_when_deferred_then_it_comes_again_after_the_delay_and_counts(bench: Bench) -> None:
    await bench.send("1")
    [delivery] = await bench.consumer.receive()

    await bench.consumer.defer(delivery, timedelta(seconds=60))

    await bench.clock.advance(59)
    assert await bench.consumer.receive(wait=NOW) == []
    await bench.clock.advance(1)
    [again] = await bench.consumer.receive(wait=NOW)
    assert (again.message.id, again.attempt) == ("1", 2)


async def test_when_abandoned_then_it_comes_again_at_once_and_does_not_count(
    bench: Bench,
) -> None:
    await bench.send("1")
    [delivery] = await bench.consumer.receive()

    await bench.consumer.abandon(delivery)

    [again] = await bench.consumer.receive(wait=NOW)
    assert again.attempt == 1


async def test_when_extended_then_the_lease_ends_that_much_later(bench: Bench) -> None:
    """R15, R16."""
    await bench.send("1", "2")
    by_default, by_choice = await bench.consumer.receive(2)
    await bench.clock.advance(20)

    await bench.consumer.extend(by_default)
    await bench.consumer.extend(by_choice, timedelta(seconds=100))

    await bench.clock.advance(29)
    assert await bench.consumer.receive(wait=NOW) == []
    await bench.clock.advance(1)
    [first] = await bench.consumer.receive(10, wait=NOW)
    assert first.message.id == "1"
    await bench.consumer.ack(by_choice)


@pytest.mark.parametrize(
    ("reason", "queue"),
    [(RejectionReason.DELIVERY_ERROR, "dead"), (RejectionReason.UNACCEPTABLE, "bad")],
)
async def test_when_rejected_then_a_copy_is_routed_and_the_original_removed(
    bench: Bench, reason: RejectionReason, queue: str
) -> None:
    """R25, R26, R27, R28."""
    await bench.send("1")
    [delivery] = await bench.consumer.receive()

    await bench.consumer.reject(delivery, reason, "no stock")

    [copy] = await bench.gateway.admin().peek(queue, max_count=10)
    assert copy.id == "1"
    assert copy.headers["rejectionMessage"] == "no stock"
    assert copy.headers["rejectionReason"] == reason.value
    await bench.clock.advance(100)
    assert await bench.consumer.receive(wait=NOW) == []


async def test_when_rejected_without_a_reason_then_it_is_a_delivery_error(bench: Bench) -> None:
    """R25."""
    await bench.send("1")
    [delivery] = await bench.consumer.receive()

    await bench.consumer.reject(delivery)

    assert await bench.ids("dead") == ["1"]


async def test_when_nothing_was_rejected_then_no_producer_for_the_targets_was_made(
    bench: Bench,
) -> None:
    """R31."""
    await bench.send("1")
    [delivery] = await bench.consumer.receive()
    await bench.consumer.ack(delivery)

    assert bench.gateway.record.producers == ["orders"]


async def test_when_rejecting_and_the_queue_is_away_then_it_is_spilled_and_removed(
    bench: Bench,
) -> None:
    """T1."""
    await bench.send("1")
    [delivery] = await bench.consumer.receive()
    bench.gateway.fail("send", ConnectionFailed("dead", "away"))

    await bench.consumer.reject(delivery)

    assert [each.message.id for each in await bench.spill.all()] == ["1"]
    await bench.clock.advance(100)
    assert await bench.consumer.receive(wait=NOW) == []


async def test_when_rejecting_a_delivery_whose_lease_is_over_then_nothing_is_copied(
    bench: Bench,
) -> None:
    """R6, R27: and observers are told once that it was lost."""
    await bench.send("1")
    [delivery] = await bench.consumer.receive()
    await bench.clock.advance(30)

    for _ in range(2):
        with pytest.raises(InvalidReceipt):
            await bench.consumer.reject(delivery)

    assert await bench.ids("dead") == []
    [event] = bench.events
    assert isinstance(event, LeaseLostEvent)
    [again] = await bench.consumer.receive(wait=NOW)
    await bench.consumer.reject(again)
    assert await bench.ids("dead") == ["1"]


async def test_when_another_consumer_acked_it_then_rejecting_copies_nothing(bench: Bench) -> None:
    """R6, R27: this process cannot know it, so the broker is asked first."""
    await bench.send("1")
    [delivery] = await bench.consumer.receive()
    async with bench.app.consumer(bench.subscription) as other:
        await other.ack(delivery)

    with pytest.raises(InvalidReceipt):
        await bench.consumer.reject(delivery)

    assert await bench.ids("dead") == []


async def test_when_a_delivery_came_from_elsewhere_then_the_broker_says_whether_it_is_ours(
    bench: Bench,
) -> None:
    """R6, R27: one that was pickled and read again, say; its deadline is another clock's."""
    await bench.send("1")
    [delivery] = await bench.consumer.receive()
    await bench.consumer.extend(delivery, timedelta(seconds=100))
    await bench.clock.advance(50)
    copied = pickle.loads(pickle.dumps(delivery))

    await bench.consumer.reject(copied)

    for gone in (delivery, copied):
        with pytest.raises(InvalidReceipt):
            await bench.consumer.reject(gone)
    assert await bench.ids("dead") == ["1"]


@pytest.mark.parametrize("does_hang", [False, True])
async def test_when_the_lease_cannot_be_extended_then_our_own_deadline_counts(
    bench: Bench, does_hang: bool
) -> None:
    """R27: a broker that does not answer has not said no."""
    await bench.send("1")
    [delivery] = await bench.consumer.receive()
    if does_hang:
        bench.gateway.hang("extend")
    else:
        bench.gateway.fail("extend", ConnectionFailed("broker", "away"))

    rejecting = asyncio.create_task(bench.consumer.reject(delivery))
    await bench.clock.advance(8)

    assert (await rejecting).fate is Fate.ROUTED
    assert await bench.ids("dead") == ["1"]


async def test_when_the_copy_takes_longer_than_a_lease_then_the_lease_is_kept(
    bench: Bench,
) -> None:
    """R27: nobody else gets it meanwhile."""
    subscription = attrs.evolve(bench.subscription, lease=timedelta(seconds=4))
    async with bench.app.consumer(subscription) as consumer:
        await bench.send("1")
        [delivery] = await consumer.receive()
        bench.gateway.slow("send", 20)

        rejecting = asyncio.create_task(consumer.reject(delivery))
        for _ in range(19):
            await bench.clock.advance(1)
            assert await bench.consumer.receive(wait=NOW) == []
        await bench.clock.advance(1)

        assert (await rejecting).fate is Fate.ROUTED
    await bench.clock.advance(100)
    assert await bench.consumer.receive(wait=NOW) == []


async def test_when_the_lease_is_lost_on_the_way_then_the_copy_is_stopped(bench: Bench) -> None:
    """R27, law 3."""
    await bench.send("1")
    [delivery] = await bench.consumer.receive()
    bench.gateway.slow("send", 25)
    rejecting = asyncio.create_task(bench.consumer.reject(delivery))
    await bench.clock.advance(1)
    async with bench.app.consumer(bench.subscription) as other:
        await other.ack(delivery)

    await bench.clock.advance(25)

    with pytest.raises(InvalidReceipt):
        await rejecting
    assert await bench.ids("dead") == []


async def test_when_the_caller_extended_it_by_more_then_rejecting_does_not_shorten_it(
    bench: Bench,
) -> None:
    """R15."""
    await bench.send("1")
    [delivery] = await bench.consumer.receive()
    await bench.consumer.extend(delivery, timedelta(hours=1))
    bench.gateway.fail("settle", ConnectionFailed("broker", "away"))
    with pytest.raises(ConnectionFailed):
        await bench.consumer.reject(delivery)

    await bench.clock.advance(3_000)

    bench.gateway.heal("settle")
    await bench.consumer.ack(delivery)


async def test_when_a_settlement_fails_then_it_may_be_tried_again(bench: Bench) -> None:
    """R5: the broker may not know of it."""
    await bench.send("1")
    [delivery] = await bench.consumer.receive()
    bench.gateway.fail("settle", ConnectionFailed("broker", "away"), times=1)
    with pytest.raises(ConnectionFailed):
        await bench.consumer.ack(delivery)

    await bench.consumer.ack(delivery)

    assert [event.status.value for event in bench.outcomes] == ["processed"]


@pytest.mark.parametrize(
    ("given", "header", "queue"),
    [
        ("unacceptable", "Unacceptable", "bad"),
        ("UNACCEPTABLE", "Unacceptable", "bad"),
        ("Unacceptable", "Unacceptable", "bad"),
        ("DELIVERY_ERROR", "DeliveryError", "dead"),
        ("deliveryError", "DeliveryError", "dead"),
        ("Out of stock", "Out of stock", "dead"),
    ],
)
async def test_when_a_reason_is_given_as_text_then_it_is_found_whatever_its_case(
    bench: Bench, given: str, header: str, queue: str
) -> None:
    """R25, R26, R28: one of the application's own is a delivery error, and is told as it is."""
    await bench.send("1")
    [delivery] = await bench.consumer.receive()

    await bench.consumer.reject(delivery, given)

    [copy] = await bench.gateway.admin().peek(queue, max_count=10)
    assert copy.headers["rejectionReason"] == header
    assert [event.reason for event in bench.outcomes] == [header]


@pytest.mark.parametrize("wrong", [{"reason": None}, {"reason": " "}, {"detail": None}])
async def test_when_reason_or_detail_is_no_text_then_it_is_refused_and_nothing_happens(
    bench: Bench, wrong: dict[str, Any]
) -> None:
    await bench.send("1")
    [delivery] = await bench.consumer.receive()

    with pytest.raises(ConfigurationError, match=f"reject.{next(iter(wrong))}"):
        await bench.consumer.reject(delivery, **wrong)

    assert bench.gateway.record.calls["extend"] == 0
    await bench.consumer.ack(delivery)


async def test_when_iterated_then_one_delivery_comes_after_the_other_until_idle(
    bench: Bench,
) -> None:
    """R3, R4."""
    await bench.send("1", "2", "3")

    async def consume() -> list[str]:
        seen = []
        async for delivery in bench.consumer.deliveries(idle=timedelta(seconds=45)):
            seen.append(delivery.message.id)
            await bench.consumer.ack(delivery)
        return seen

    consuming = asyncio.create_task(consume())
    await bench.clock.advance(44)
    assert not consuming.done()
    await bench.clock.advance(1)
    assert await consuming == ["1", "2", "3"]


async def test_when_an_iteration_is_left_then_what_it_had_not_given_out_is_handed_back(
    bench: Bench,
) -> None:
    """R8: at once, and uncounted."""
    await bench.send("1", "2", "3")

    async with contextlib.aclosing(bench.consumer.deliveries(max_count=3)) as deliveries:
        async for delivery in deliveries:
            await bench.consumer.ack(delivery)
            break

    rest = await bench.consumer.receive(10, wait=NOW)
    assert [(each.message.id, each.attempt) for each in rest] == [("2", 1), ("3", 1)]


async def test_when_what_was_not_given_out_is_not_ours_any_more_then_leaving_raises_nothing(
    bench: Bench,
) -> None:
    """R8: the caller has never had it; observers are told once of what was lost."""
    await bench.send("1", "2", "3")

    async with contextlib.aclosing(bench.consumer.deliveries(max_count=3)) as deliveries:
        async for delivery in deliveries:
            await bench.clock.advance(bench.subscription.lease.total_seconds() - 1)
            await bench.consumer.extend(delivery)
            await bench.clock.advance(2)
            await bench.consumer.ack(delivery)
            break

    rest = await bench.consumer.receive(10, wait=NOW)
    assert sorted(each.message.id for each in rest) == ["2", "3"]
    lost = [each.message_id for each in bench.events if isinstance(each, LeaseLostEvent)]
    assert lost == ["2", "3"]


async def test_when_what_was_not_given_out_cannot_be_handed_back_then_the_others_are(
    bench: Bench,
) -> None:
    """R8: it comes again when its lease ends."""
    await bench.send("1", "2", "3")

    async with contextlib.aclosing(bench.consumer.deliveries(max_count=3)) as deliveries:
        async for _ in deliveries:
            bench.gateway.fail("settle", ConnectionFailed("broker", "away"), times=1)
            break

    rest = await bench.consumer.receive(10, wait=NOW)
    assert [each.message.id for each in rest] == ["3"]


@pytest.mark.parametrize("operation", ["receive", "settle", "extend"])
async def test_when_the_broker_fails_then_the_caller_hears_of_it(
    bench: Bench, operation: str
) -> None:
    await bench.send("1", "2")
    [delivery] = await bench.consumer.receive()
    bench.gateway.fail(operation, ConnectionFailed("broker", "away"))
    consumer = bench.consumer
    work: dict[str, Callable[[], Awaitable[object]]] = {
        "receive": consumer.receive,
        "settle": lambda: consumer.ack(delivery),
        "extend": lambda: consumer.extend(delivery),
    }

    with pytest.raises(ConnectionFailed):
        await work[operation]()


async def test_when_receiving_is_cancelled_then_nothing_stays_hidden(bench: Bench) -> None:
    """R4, law 6."""
    receiving = asyncio.create_task(bench.consumer.receive())
    await bench.clock.settle()

    receiving.cancel()
    await asyncio.wait([receiving])

    assert receiving.cancelled()
    await bench.send("1")
    assert len(await bench.consumer.receive(wait=NOW)) == 1


async def test_when_the_queue_must_exist_and_does_not_then_opening_says_so(bench: Bench) -> None:
    missing = Subscription(queue="missing", request=dict, make_channels="validate")

    with pytest.raises(QueueNotFound, match="missing"):
        async with bench.app.consumer(missing):
            pass
