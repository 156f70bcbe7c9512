"""Sending to SQS, without a server: chunks, partial failures, delays."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gateways.sqs.producer import SqsProducer
from pump.errors import (
    AccessDenied,
    ConnectionFailed,
    MessageTooLarge,
    QueueNotFound,
    SendFailed,
    UnsupportedOperation,
)
from pump.testing import VirtualClock, a_message

from .scripted import ScriptedTransport, failed

SEND = "send_message_batch"


def producer_of(
    transport: ScriptedTransport, clock: VirtualClock | None = None, queue: str = "orders"
) -> SqsProducer:
    return SqsProducer(transport.calls(queue), clock=clock or VirtualClock())


def bodies(request: Any) -> list[str]:
    return [entry["MessageBody"] for entry in request["Entries"]]


async def test_when_many_are_sent_then_in_tens_and_in_order() -> None:
    """R58."""
    transport = ScriptedTransport()
    messages = [a_message(str(number)) for number in range(23)]

    ids = await producer_of(transport).send(messages)

    sent = [bodies(request) for request in transport.requests(SEND)]
    assert [len(each) for each in sent] == [10, 10, 3]
    assert [body for each in sent for body in each] == [str(number) for number in range(23)]
    assert list(ids) == [message.id for message in messages]


async def test_when_bodies_are_large_then_a_batch_holds_a_mebibyte_in_all() -> None:
    """R58: by count and by bytes."""
    transport = ScriptedTransport()

    await producer_of(transport).send([a_message(b"x" * 400_000) for _ in range(5)])

    assert [len(each["Entries"]) for each in transport.requests(SEND)] == [2, 2, 1]


async def test_when_sqs_fails_an_entry_by_its_own_fault_then_it_is_sent_again() -> None:
    """R52, R58: with a pause, and without the others."""
    clock = VirtualClock()
    transport = ScriptedTransport(
        send_message_batch=[
            failed(1, "InternalError", by_sender=False),
            failed(0, "ThrottlingException", by_sender=False),
        ]
    )
    sending = asyncio.create_task(
        producer_of(transport, clock).send([a_message("A"), a_message("B"), a_message("C")])
    )
    await clock.settle()
    sent_at_once = len(transport.requests(SEND))
    await clock.advance(60)

    assert len(await sending) == 3
    assert sent_at_once == 1
    assert [bodies(each) for each in transport.requests(SEND)] == [["A", "B", "C"], ["B"], ["B"]]


async def test_when_sqs_keeps_failing_an_entry_then_the_attempts_are_bounded_and_it_is_named() -> (
    None
):
    """R52, R58."""
    clock = VirtualClock()
    good, bad = a_message("good"), a_message("bad")
    answers = [failed(1, "InternalError", by_sender=False)]
    answers += [failed(0, "InternalError", by_sender=False)] * 3
    transport = ScriptedTransport(send_message_batch=[*answers])

    sending = asyncio.create_task(producer_of(transport, clock).send([good, bad]))
    await clock.advance(300)

    with pytest.raises(SendFailed) as caught:
        await sending
    [(message_id, error)] = caught.value.failures
    assert message_id == bad.id
    assert isinstance(error, ConnectionFailed)
    assert len(transport.requests(SEND)) == 4


async def test_when_a_reply_does_not_tell_of_an_entry_then_it_does_not_count_as_sent() -> None:
    """Who answers like that is not SQS, and its silence would lose the message."""
    clock = VirtualClock()
    only_the_first = {"Successful": [{"Id": "0", "MessageId": "sqs-0"}]}
    of_nobody: dict[str, Any] = {"Successful": []}
    transport = ScriptedTransport(send_message_batch=[only_the_first, of_nobody])

    sending = asyncio.create_task(
        producer_of(transport, clock).send([a_message("A"), a_message("B")])
    )
    await clock.advance(60)

    assert len(await sending) == 2
    assert [bodies(each) for each in transport.requests(SEND)] == [["A", "B"], ["B"], ["B"]]


async def test_when_no_reply_tells_of_a_message_then_the_send_fails() -> None:
    clock = VirtualClock()
    transport = ScriptedTransport(send_message_batch=[{"Successful": []}] * 4)

    sending = asyncio.create_task(producer_of(transport, clock).send([a_message()]))
    await clock.advance(300)

    with pytest.raises(ConnectionFailed, match="proxy"):
        await sending


async def test_when_an_entry_is_the_senders_fault_then_it_is_not_sent_again() -> None:
    """R58."""
    good, bad = a_message(), a_message()
    transport = ScriptedTransport(
        send_message_batch=[failed(1, "InvalidMessageContents", by_sender=True)]
    )

    with pytest.raises(SendFailed) as caught:
        await producer_of(transport).send([good, bad])

    assert [message_id for message_id, _ in caught.value.failures] == [bad.id]
    assert len(transport.requests(SEND)) == 1


async def test_when_a_later_request_fails_then_what_was_not_sent_is_named() -> None:
    """R58: the first ten are there, and must not be sent twice by a careful caller."""
    messages = [a_message() for _ in range(25)]
    transport = ScriptedTransport(send_message_batch=[{}, ConnectionFailed("orders", "reset")])

    with pytest.raises(SendFailed) as caught:
        await producer_of(transport).send(messages)

    assert [message_id for message_id, _ in caught.value.failures] == [
        message.id for message in messages[10:]
    ]


@pytest.mark.parametrize("error", [QueueNotFound("orders"), AccessDenied("orders", "sqs:Send")])
async def test_when_the_first_request_fails_then_its_error_is_raised_as_it_is(
    error: Exception,
) -> None:
    """R2, R58."""
    transport = ScriptedTransport(send_message_batch=[error])

    with pytest.raises(type(error)):
        await producer_of(transport).send([a_message() for _ in range(3)])


async def test_when_one_body_is_too_large_then_the_others_are_sent_and_it_is_named() -> None:
    """R58."""
    small, large = a_message("small"), a_message(b"x" * 1_048_577)
    transport = ScriptedTransport()

    with pytest.raises(SendFailed) as caught:
        await producer_of(transport).send([large, small])

    [(message_id, error)] = caught.value.failures
    assert message_id == large.id
    assert isinstance(error, MessageTooLarge)
    assert [bodies(each) for each in transport.requests(SEND)] == [["small"]]


async def test_when_a_body_is_over_the_limit_of_the_queue_then_it_says_so() -> None:
    """R58: the option `max_message_bytes`, or what another program has set."""
    said = "One or more parameters are invalid. Reason: Message must be shorter than 1024 bytes."
    refused = {"Id": "0", "Code": "InvalidParameterValue", "SenderFault": True, "Message": said}
    transport = ScriptedTransport(send_message_batch=[{"Successful": [], "Failed": [refused]}])

    with pytest.raises(MessageTooLarge) as caught:
        await producer_of(transport).send([a_message(b"x" * 2000)])

    assert caught.value.max_size == 1024
    assert caught.value.size >= 2000


async def test_when_the_only_body_is_too_large_then_that_is_raised() -> None:
    transport = ScriptedTransport()

    with pytest.raises(MessageTooLarge, match="orders"):
        await producer_of(transport).send([a_message(b"x" * 1_048_577)])

    assert transport.requests(SEND) == []


async def test_when_sent_with_a_delay_then_in_whole_seconds_and_never_earlier() -> None:
    transport = ScriptedTransport()

    await producer_of(transport).send([a_message()], delay_s=1.1)

    [request] = transport.requests(SEND)
    assert request["Entries"][0]["DelaySeconds"] == 2


@pytest.mark.parametrize(
    ("queue", "delay_s", "remedy"), [("orders", 901, "900"), ("orders.fifo", 1, "'delay'")]
)
async def test_when_sqs_cannot_delay_so_then_it_is_refused_before_anything_is_sent(
    queue: str, delay_s: float, remedy: str
) -> None:
    """R76."""
    transport = ScriptedTransport()

    with pytest.raises(UnsupportedOperation, match=remedy):
        await producer_of(transport, queue=queue).send([a_message()], delay_s=delay_s)

    assert transport.asked == []


async def test_when_sent_to_a_fifo_queue_then_group_and_deduplication_id_travel_along() -> None:
    """R38, R39."""
    transport = ScriptedTransport()

    await producer_of(transport, queue="orders.fifo").send(
        [a_message(group="north", deduplication_id="d-1"), a_message(id="m-2")]
    )

    [request] = transport.requests(SEND)
    first, second = request["Entries"]
    assert (first["MessageGroupId"], first["MessageDeduplicationId"]) == ("north", "d-1")
    assert (second["MessageGroupId"], second["MessageDeduplicationId"]) == ("-", "m-2")
