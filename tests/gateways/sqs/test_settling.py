"""Settling on SQS, without a server: batches, partial failures, stale receipts, the ceiling."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from pump.errors import ConnectionFailed, InvalidReceipt, Throttled
from pump.testing import VirtualClock, a_message, abandon, ack, defer

from .scripted import Answer, ScriptedTransport, failed, received
from .test_consumer import consumer_of

DELETE = "delete_message_batch"
HIDE = "change_message_visibility_batch"
HOUR_S = 3_600


async def test_when_a_mixed_batch_is_settled_then_two_requests_tell_it_all() -> None:
    """R58: one request for the deletes, one for the rest."""
    transport = transport_with(3)
    consumer = consumer_of(transport, VirtualClock())
    done, later, untried = await consumer.receive(max_count=10, wait_s=0)

    refused = await consumer.settle([ack(done), defer(later, seconds=1.2), abandon(untried)])

    assert list(refused) == []
    [deletes] = transport.requests(DELETE)
    [hides] = transport.requests(HIDE)
    assert [each["ReceiptHandle"] for each in deletes["Entries"]] == [done.receipt]
    # Whole seconds, and never earlier than asked for.
    assert [(each["ReceiptHandle"], each["VisibilityTimeout"]) for each in hides["Entries"]] == [
        (later.receipt, 2),
        (untried.receipt, 0),
    ]


@pytest.mark.parametrize("code", ["ReceiptHandleIsInvalid", "InvalidParameterValue"])
async def test_when_sqs_refuses_a_receipt_then_that_one_is_lost_and_the_others_settled(
    code: str,
) -> None:
    """R6, R58: a late delete is a lost lease."""
    transport = transport_with(3, delete_message_batch=[failed(1, code, by_sender=True)])
    consumer = consumer_of(transport, VirtualClock())
    deliveries = await consumer.receive(max_count=10, wait_s=0)

    [refusal] = await consumer.settle([ack(each) for each in deliveries])

    assert refusal.delivery is deliveries[1]
    assert isinstance(refusal.error, InvalidReceipt)
    assert refusal.error.receipt == deliveries[1].receipt
    again = await consumer.settle([ack(each) for each in deliveries])
    assert [each.is_final for each in again] == [True] * 3
    assert len(transport.requests(DELETE)) == 1


@pytest.mark.parametrize("code", ["ReceiptHandleIsInvalid", "MessageNotInflight"])
async def test_when_a_message_to_come_again_is_not_in_flight_then_that_is_what_was_asked(
    code: str,
) -> None:
    """R11, R51: the answer to a first request was lost, and the SDK asked once more."""
    transport = transport_with(2, change_message_visibility_batch=[failed(0, code, by_sender=True)])
    consumer = consumer_of(transport, VirtualClock())
    first, second = await consumer.receive(max_count=10, wait_s=0)

    refused = await consumer.settle([abandon(first), defer(second)])

    assert list(refused) == []
    [again] = await consumer.settle([ack(first)])
    assert again.is_final


async def test_when_sqs_fails_an_entry_by_its_own_fault_then_it_may_be_settled_again() -> None:
    """R58, R52."""
    transport = transport_with(
        2, delete_message_batch=[failed(0, "InternalError", by_sender=False)]
    )
    consumer = consumer_of(transport, VirtualClock())
    first, second = await consumer.receive(max_count=10, wait_s=0)

    [refusal] = await consumer.settle([ack(first), ack(second)])
    is_final = refusal.is_final
    again = await consumer.settle([ack(first)])

    assert refusal.delivery is first
    assert not is_final
    assert list(again) == []


async def test_when_no_answer_comes_then_the_settlement_may_be_repeated() -> None:
    """R51: whether it was applied or not, deleting again is harmless."""
    transport = transport_with(1, delete_message_batch=[ConnectionFailed("orders", "reset")])
    consumer = consumer_of(transport, VirtualClock())
    [delivery] = await consumer.receive(max_count=1, wait_s=0)
    with pytest.raises(ConnectionFailed):
        await consumer.settle([ack(delivery)])

    refused = await consumer.settle([ack(delivery)])

    assert list(refused) == []


async def test_when_settling_is_cancelled_then_it_may_be_repeated() -> None:
    """Law 6: the settler gives up on a reply that never comes, not on the message."""
    clock = VirtualClock()
    transport = transport_with(1, delete_message_batch=[asyncio.Event()])
    consumer = consumer_of(transport, clock)
    [delivery] = await consumer.receive(max_count=1, wait_s=0)
    settling = asyncio.create_task(consumer.settle([ack(delivery)]))
    await clock.settle()
    settling.cancel()
    await clock.settle()

    refused = await consumer.settle([ack(delivery)])

    assert settling.cancelled()
    assert list(refused) == []


async def test_when_cancelled_between_two_answers_then_only_the_unanswered_may_be_repeated() -> (
    None
):
    """Law 1: another consumer may have what was given back."""
    clock = VirtualClock()
    transport = transport_with(2, delete_message_batch=[asyncio.Event()])
    consumer = consumer_of(transport, clock)
    first, second = await consumer.receive(max_count=10, wait_s=0)
    settling = asyncio.create_task(consumer.settle([ack(first), abandon(second)]))
    await clock.settle()
    settling.cancel()
    await clock.settle()

    refused = await consumer.settle([ack(first), abandon(second)])

    assert [(each.delivery, each.is_final) for each in refused] == [(second, True)]
    assert len(transport.requests(HIDE)) == 1


async def test_when_one_of_several_requests_fails_then_only_its_entries_are_refused() -> None:
    """R58: what the other requests did is known."""
    transport = ScriptedTransport(
        receive_message=[
            received(*(a_message() for _ in range(10)), receipt="a"),
            received(a_message(), receipt="b"),
        ],
        delete_message_batch=[Throttled("orders")],
    )
    consumer = consumer_of(transport, VirtualClock())
    lot = [*await consumer.receive(max_count=10, wait_s=0)]
    [last] = await consumer.receive(max_count=10, wait_s=0)

    refused = await consumer.settle([ack(each) for each in [*lot, last]])

    assert [each.delivery for each in refused] == lot
    assert not any(each.is_final for each in refused)


async def test_when_every_request_fails_then_the_error_is_raised() -> None:
    transport = transport_with(
        2,
        delete_message_batch=[Throttled("orders")],
        change_message_visibility_batch=[Throttled("orders")],
    )
    consumer = consumer_of(transport, VirtualClock())
    first, second = await consumer.receive(max_count=10, wait_s=0)

    with pytest.raises(Throttled):
        await consumer.settle([ack(first), abandon(second)])

    assert not await consumer.settle([ack(first), abandon(second)])


async def test_when_the_lease_is_over_then_sqs_is_not_even_asked() -> None:
    """R6; law 3: SQS would delete a message that somebody else may be handling."""
    clock = VirtualClock()
    transport = transport_with(1)
    consumer = consumer_of(transport, clock, lease=timedelta(seconds=30))
    [delivery] = await consumer.receive(max_count=1, wait_s=0)

    await clock.advance(30)
    refused = [
        *await consumer.settle([ack(delivery)]),
        *await consumer.extend([delivery], lease_s=30),
    ]

    assert [each.is_final for each in refused] == [True, True]
    assert transport.requests(DELETE) == []
    assert transport.requests(HIDE) == []


async def test_when_a_lease_was_extended_then_it_can_be_settled_until_the_new_end() -> None:
    """R15."""
    clock = VirtualClock()
    consumer = consumer_of(transport_with(1), clock, lease=timedelta(seconds=30))
    [delivery] = await consumer.receive(max_count=1, wait_s=0)
    await clock.advance(20)

    refused = await consumer.extend([delivery], lease_s=30)
    await clock.advance(29)

    assert list(refused) == []
    assert list(await consumer.settle([ack(delivery)])) == []


async def test_when_acked_while_the_heartbeat_is_on_its_way_then_the_ack_counts() -> None:
    """Law 1: the keeper and the settler work side by side."""
    clock = VirtualClock()
    answer = asyncio.Event()
    transport = transport_with(1, change_message_visibility_batch=[answer])
    consumer = consumer_of(transport, clock)
    [delivery] = await consumer.receive(max_count=1, wait_s=0)
    extending = asyncio.create_task(consumer.extend([delivery], lease_s=30))
    await clock.settle()

    refused = await consumer.settle([ack(delivery)])
    answer.set()

    assert list(refused) == []
    assert list(await extending) == []
    [second] = await consumer.settle([ack(delivery)])
    assert second.is_final


async def test_when_twelve_hours_are_nearly_over_then_no_more_is_asked_for_than_is_left() -> None:
    """SQS refuses to hide a message beyond twelve hours after its receive."""
    clock = VirtualClock()
    transport = transport_with(1)
    consumer = consumer_of(transport, clock, lease=timedelta(hours=11))
    [delivery] = await consumer.receive(max_count=1, wait_s=0)
    await clock.advance(10 * HOUR_S)

    refused = await consumer.extend([delivery], lease_s=11 * HOUR_S)
    await clock.advance(2 * HOUR_S - 5)
    late = await consumer.extend([delivery], lease_s=60)

    assert list(refused) == []
    hidden_s = [each["Entries"][0]["VisibilityTimeout"] for each in transport.requests(HIDE)]
    assert hidden_s == [2 * HOUR_S, 5]
    assert list(late) == []


async def test_when_twelve_hours_are_over_then_there_is_nothing_to_extend() -> None:
    clock = VirtualClock()
    consumer = consumer_of(transport_with(1), clock, lease=timedelta(hours=12))
    [delivery] = await consumer.receive(max_count=1, wait_s=0)
    await clock.advance(12 * HOUR_S - 0.5)

    [refusal] = await consumer.extend([delivery], lease_s=60)

    assert refusal.is_final


def transport_with(count: int, **scripts: list[Answer]) -> ScriptedTransport:
    """A queue that holds so many messages."""
    lot = received(*(a_message() for _ in range(count)))
    return ScriptedTransport(receive_message=[lot], **scripts)


@pytest.mark.parametrize("queue", ["orders", "orders.fifo"])
@pytest.mark.parametrize("is_asked_late", [True, False])
async def test_when_a_lease_is_all_but_over_then_its_extension_proves_nothing(
    queue: str, is_asked_late: bool
) -> None:
    """R6, R15: it may be granted to a receipt whose message another consumer has, too."""
    clock = VirtualClock()
    answer = asyncio.Event()
    transport = transport_with(1, change_message_visibility_batch=[answer])
    consumer = consumer_of(transport, clock, queue, lease=timedelta(seconds=30))
    [delivery] = await consumer.receive(max_count=10, wait_s=0)

    await clock.advance(29.5 if is_asked_late else 28)
    extending = asyncio.create_task(consumer.extend([delivery], lease_s=30))
    await clock.advance(0.2 if is_asked_late else 1.5)
    answer.set()

    assert [each.is_final for each in await extending] == [True]
    assert len(transport.requests(HIDE)) == (0 if is_asked_late else 1)
