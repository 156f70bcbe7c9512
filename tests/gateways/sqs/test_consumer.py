"""The consumer of an SQS queue, without a server: waiting, cancelling, silence, repetition."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from gateways.sqs import SqsGateway
from gateways.sqs.consumer import SqsConsumer
from gateways.sqs.gateway import CLOSING_S
from gateways.sqs.settling import SqsReceipts
from pump import App
from pump.errors import ConfigurationError, ConnectionFailed, QueueNotFound, Throttled
from pump.message import Delivery
from pump.stores.spill import MemorySpill
from pump.testing import VirtualClock, a_message, a_subscription, ack

from .paper_aws import PaperAws
from .scripted import URL, ScriptedTransport, received


def consumer_of(
    transport: ScriptedTransport,
    clock: VirtualClock,
    queue: str = "orders",
    *,
    receipts: SqsReceipts | None = None,
    **fields: Any,
) -> SqsConsumer:
    return SqsConsumer(
        transport.calls(queue),
        a_subscription(queue, **fields),
        SqsReceipts() if receipts is None else receipts,
        clock=clock,
        claims=None,
        silence_s=30.0,
    )


@pytest.mark.parametrize(
    ("wait_s", "polls", "took_s"),
    [
        (0, [0], 0),
        (0.4, [0, 0], 0.4),
        (1, [1], 1),
        (2.5, [2, 0], 2.5),
        (45.25, [20, 20, 5, 0], 45.25),
    ],
)
async def test_when_the_wait_is_not_what_sqs_counts_in_then_polls_make_it_up(
    wait_s: float, polls: list[int], took_s: float
) -> None:
    """R4, T12."""
    clock = VirtualClock()
    transport = ScriptedTransport()
    consumer = consumer_of(PatientTransport(transport, clock), clock)
    started_s = clock.now_s()

    receiving = asyncio.create_task(consumer.receive(max_count=5, wait_s=wait_s))
    while not receiving.done():
        await clock.advance(0.05)

    assert [each["WaitTimeSeconds"] for each in transport.requests("receive_message")] == polls
    assert clock.now_s() - started_s == pytest.approx(took_s, abs=0.1)


async def test_when_more_is_asked_for_than_sqs_gives_then_it_is_asked_for_ten() -> None:
    """R58."""
    transport = ScriptedTransport()
    consumer = consumer_of(transport, VirtualClock())

    await consumer.receive(max_count=64, wait_s=0)

    [request] = transport.requests("receive_message")
    assert request["MaxNumberOfMessages"] == 10


async def test_when_order_is_strict_then_one_message_is_asked_for() -> None:
    """R37, T7: SQS would fill the batch from one group."""
    transport = ScriptedTransport()
    consumer = consumer_of(transport, VirtualClock(), "orders.fifo", ordering_guarantee=True)

    await consumer.receive(max_count=10, wait_s=0)

    [request] = transport.requests("receive_message")
    assert request["MaxNumberOfMessages"] == 1


def test_when_strict_order_is_asked_of_a_standard_queue_then_it_is_refused() -> None:
    """R37, T7."""
    gateway = SqsGateway()

    with pytest.raises(ConfigurationError, match=r"orders\.fifo"):
        gateway.consumer(a_subscription("orders", ordering_guarantee=True))


async def test_when_the_answer_was_long_on_its_way_then_that_is_spent_of_the_lease() -> None:
    """R3: the lease began at SQS, not at the answer."""
    clock = VirtualClock()
    answer = asyncio.Event()
    transport = ScriptedTransport(receive_message=[answer, received(a_message())])
    consumer = consumer_of(transport, clock, lease=timedelta(seconds=30))
    asked_at_s = clock.now_s()

    receiving = asyncio.create_task(consumer.receive(max_count=1, wait_s=2))
    await clock.advance(12)
    answer.set()
    [delivery] = await receiving

    assert delivery.lease_expires_at_s == asked_at_s + 2 + 30


@pytest.mark.parametrize(("queue", "is_ordered"), [("orders", False), ("orders.fifo", True)])
async def test_when_a_queue_is_not_fifo_then_its_groups_are_no_lines(
    queue: str, is_ordered: bool
) -> None:
    """R38: on standard queues a group is a tenant that gets its fair share."""
    transport = ScriptedTransport(receive_message=[received(a_message(group="north"))])
    consumer = consumer_of(transport, VirtualClock(), queue)

    [delivery] = await consumer.receive(max_count=1, wait_s=0)

    assert delivery.message.group == "north"
    assert delivery.is_ordered is is_ordered


async def test_when_a_receive_is_cancelled_then_what_its_poll_brings_is_given_back() -> None:
    """R4: SQS leases a message to a poll whose caller is gone."""
    clock = VirtualClock()
    answer = asyncio.Event()
    transport = ScriptedTransport(receive_message=[answer, received(a_message(), a_message())])
    consumer = consumer_of(transport, clock)
    receiving = asyncio.create_task(consumer.receive(max_count=10, wait_s=20))
    await clock.settle()

    receiving.cancel()
    await clock.settle()
    was_cancelled = receiving.cancelled()
    closing = asyncio.create_task(consumer.aclose())
    await clock.settle()
    was_closing = not closing.done()
    answer.set()
    await closing

    assert was_cancelled
    assert was_closing
    [request] = transport.requests("change_message_visibility_batch")
    assert [(each["ReceiptHandle"], each["VisibilityTimeout"]) for each in request["Entries"]] == [
        ("r-0", 0),
        ("r-1", 0),
    ]


async def test_when_giving_back_fails_then_closing_goes_on_and_the_leases_run_out() -> None:
    clock = VirtualClock()
    answer = asyncio.Event()
    transport = ScriptedTransport(
        receive_message=[answer, received(a_message())],
        change_message_visibility_batch=[Throttled("orders")],
    )
    consumer = consumer_of(transport, clock)
    receiving = asyncio.create_task(consumer.receive(max_count=1, wait_s=20))
    await clock.settle()
    receiving.cancel()
    await clock.settle()

    answer.set()
    await consumer.aclose()

    assert len(transport.requests("change_message_visibility_batch")) == 1


async def test_when_closing_is_cancelled_then_the_polls_end_at_once() -> None:
    """Law 6."""
    clock = VirtualClock()
    transport = ScriptedTransport(receive_message=[asyncio.Event()])
    consumer = consumer_of(transport, clock)
    receiving = asyncio.create_task(consumer.receive(max_count=1, wait_s=20))
    await clock.settle()
    receiving.cancel()
    await clock.settle()
    closing = asyncio.create_task(consumer.aclose())
    await clock.settle()

    closing.cancel()
    await clock.settle()

    assert closing.cancelled()
    await consumer.aclose()


async def test_when_sqs_does_not_answer_then_closing_the_gateway_ends_all_the_same() -> None:
    """Law 5: leases run out by themselves."""
    clock = VirtualClock()
    transport = ScriptedTransport(
        get_queue_url=[{"QueueUrl": URL + "orders"}], receive_message=[asyncio.Event()]
    )
    gateway = SqsGateway(clock=clock, transport=transport)
    consumer = gateway.consumer(a_subscription("orders"))
    receiving = asyncio.create_task(consumer.receive(max_count=1, wait_s=20))
    await clock.settle()
    receiving.cancel()
    await clock.settle()

    closing = asyncio.create_task(gateway.aclose())
    await clock.advance(CLOSING_S - 0.1)
    was_waiting = not closing.done()
    await clock.advance(0.2)

    assert was_waiting
    assert closing.done()
    assert closing.exception() is None


async def test_when_polling_then_the_transport_is_told_how_long_silence_may_last() -> None:
    """R51: a connection that died without a word must not stop the pump for ever."""
    transport = ScriptedTransport()
    consumer = consumer_of(transport, VirtualClock())

    await consumer.receive(max_count=1, wait_s=0)

    [polling] = transport.pollings
    assert polling.patience_s == 30.0


async def test_when_a_poll_waited_in_line_then_that_is_not_spent_of_the_lease() -> None:
    """R3, R54: the lease cannot have begun before the request was made."""
    clock = VirtualClock()
    inner = ScriptedTransport(receive_message=[received(a_message())])
    consumer = consumer_of(CrowdedTransport(inner, clock), clock, lease=timedelta(seconds=5))

    receiving = asyncio.create_task(consumer.receive(max_count=1, wait_s=0))
    await clock.advance(12)
    [delivery] = await receiving

    assert delivery.lease_expires_at_s == clock.now_s() + 5


async def test_when_a_fifo_receive_had_no_answer_then_it_is_repeated_by_its_name() -> None:
    """R51: SQS gives the same messages again, and their groups are not locked for nothing."""
    clock = VirtualClock()
    transport = ScriptedTransport(receive_message=[ConnectionFailed("orders.fifo", "reset")])
    consumer = consumer_of(transport, clock, "orders.fifo", lease=timedelta(seconds=30))
    with pytest.raises(ConnectionFailed):
        await consumer.receive(max_count=3, wait_s=0)

    await consumer.receive(max_count=10, wait_s=0)
    await consumer.receive(max_count=10, wait_s=0)

    first, second, third = transport.requests("receive_message")
    assert first["ReceiveRequestAttemptId"] == second["ReceiveRequestAttemptId"]
    assert second["MaxNumberOfMessages"] == 3
    assert third["ReceiveRequestAttemptId"] != first["ReceiveRequestAttemptId"]


@pytest.mark.parametrize(("later_s", "max_count"), [(31, 10), (1, 2)])
async def test_when_the_attempt_is_too_old_or_too_large_then_a_new_one_is_made(
    later_s: float, max_count: int
) -> None:
    """R51: past its lease SQS refuses the repetition; and nobody gets more than was asked for."""
    clock = VirtualClock()
    transport = ScriptedTransport(receive_message=[ConnectionFailed("orders.fifo", "reset")])
    consumer = consumer_of(transport, clock, "orders.fifo", lease=timedelta(seconds=30))
    with pytest.raises(ConnectionFailed):
        await consumer.receive(max_count=3, wait_s=0)

    await clock.advance(later_s)
    await consumer.receive(max_count=max_count, wait_s=0)

    first, second = transport.requests("receive_message")
    assert first["ReceiveRequestAttemptId"] != second["ReceiveRequestAttemptId"]


async def test_when_the_queue_was_deleted_then_its_url_is_looked_up_anew() -> None:
    """R2: a queue that is made again later is found."""
    transport = ScriptedTransport(
        receive_message=[QueueNotFound("orders")],
        get_queue_url=[{"QueueUrl": "https://elsewhere/orders"}],
    )
    consumer = consumer_of(transport, VirtualClock())
    with pytest.raises(QueueNotFound):
        await consumer.receive(max_count=1, wait_s=0)

    await consumer.receive(max_count=1, wait_s=0)

    assert transport.requests("receive_message")[-1]["QueueUrl"] == "https://elsewhere/orders"


async def test_when_leases_run_out_unsettled_then_nothing_of_them_is_remembered() -> None:
    """R6: a consumer that never settles does not grow."""
    clock = VirtualClock()
    replies = [received(a_message(), receipt=f"lot-{number}") for number in range(50)]
    transport = ScriptedTransport(receive_message=[*replies])
    receipts = SqsReceipts()
    consumer = consumer_of(transport, clock, receipts=receipts, lease=timedelta(seconds=5))

    deliveries: list[Delivery] = []
    for _ in replies:
        deliveries += await consumer.receive(max_count=1, wait_s=0)
        await clock.advance(6)

    [refusal] = await consumer.settle([ack(deliveries[0])])
    assert refusal.is_final
    assert len(receipts) <= 1


class PatientTransport(ScriptedTransport):
    """Makes every long poll last, as SQS does."""

    def __init__(self, inner: ScriptedTransport, clock: VirtualClock) -> None:
        super().__init__()
        self._inner = inner
        self._clock = clock

    async def call(self, service: str, operation: str, request: Any, **more: Any) -> Any:
        await self._clock.sleep(request.get("WaitTimeSeconds", 0))
        return await self._inner.call(service, operation, request, **more)


class CrowdedTransport(PatientTransport):
    """Lets every poll wait twelve seconds for its connection."""

    async def call(self, service: str, operation: str, request: Any, **more: Any) -> Any:
        await self._clock.sleep(12)
        more["polling"].started_at_s = self._clock.now_s()
        return await self._inner.call(service, operation, request, **more)


async def test_when_nothing_was_rejected_then_its_queue_was_made_and_nothing_more() -> None:
    """R31: it is made with the channels; no look-up and no producer before the first reject."""
    aws = WorkingAws(received(a_message(), a_message()))
    gateway = ProducerCount(transport=aws)
    app = App(gateway, spill=MemorySpill())
    async with app, app.consumer(a_subscription("orders", dead_letter_queue="dead")) as consumer:
        assert sorted(aws.queues) == ["dead", "orders"]
        aws.asked.clear()
        done, failed = await consumer.receive(2)
        await consumer.ack(done)

        assert gateway.queues == []
        assert {queue for _, queue in aws.asked} == {"orders"}
        await consumer.reject(failed)

    assert gateway.queues == ["dead"]
    assert [asked for asked, queue in aws.asked if queue == "dead"] == ["send_message_batch"]


class WorkingAws(PaperAws):
    """An account whose queue has messages; notes who asked for which queue."""

    def __init__(self, *replies: Any) -> None:
        super().__init__()
        self.asked: list[tuple[str, str]] = []
        self._replies = list(replies)

    async def call(self, service: str, operation: str, request: Any, **more: Any) -> Any:
        name = request.get("QueueName") or request["QueueUrl"].rpartition("/")[2]
        self.asked.append((operation, name))
        if operation == "receive_message":
            return self._replies.pop() if self._replies else {}
        if "Entries" in request:
            return {
                "Successful": [{"Id": each["Id"], "MessageId": "1"} for each in request["Entries"]]
            }
        return await super().call(service, operation, request, **more)


class ProducerCount(SqsGateway):
    """Notes for which queues producers are made."""

    def __init__(self, **parts: Any) -> None:
        super().__init__(**parts)
        self.queues: list[str] = []

    def producer(self, queue: str) -> Any:
        self.queues.append(queue)
        return super().producer(queue)
