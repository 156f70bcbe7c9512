"""Sessions of SQS without a server: what cannot be had, what is asked, and what goes wrong."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest

from gateways.sqs import SqsGateway
from gateways.sqs.sessions import SqsSession
from pump import App
from pump.consumer import Consumer
from pump.errors import (
    ConnectionFailed,
    SessionLockLost,
    Throttled,
    UnsupportedOperation,
)
from pump.message import Message
from pump.ports import SessionGateway
from pump.stores.spill import MemorySpill
from pump.testing import VirtualClock, a_message, a_subscription, abandon, ack, defer

from .scripted import URL, Answer, ScriptedTransport, failed, received

QUEUE = URL + "orders.fifo"
HIDE = "change_message_visibility_batch"
DELETE = "delete_message_batch"


def messages(group: str | None, *ids: str) -> list[Message]:
    return [a_message(id=id_, group=group) for id_ in ids]


class Bench:
    """The gateway on a scripted transport."""

    def __init__(self, **scripts: list[Answer]) -> None:
        self.clock = VirtualClock(chance=0.0)
        self.transport = ScriptedTransport(**scripts)
        self.gateway = SqsGateway(clock=self.clock, transport=self.transport)

    async def accept(self, **fields: Any) -> SqsSession:
        session = await self.gateway.accept_session(a_subscription(QUEUE, **fields), None, wait_s=0)
        assert isinstance(session, SqsSession)
        return session

    def changed(self, operation: str) -> list[list[tuple[str, int | None]]]:
        """The receipts of each request, with the seconds each is hidden for."""
        return [
            [(each["ReceiptHandle"], each.get("VisibilityTimeout")) for each in request["Entries"]]
            for request in self.transport.requests(operation)
        ]


@asynccontextmanager
async def open_consumer(bench: Bench, **fields: Any) -> AsyncIterator[Consumer]:
    app = App(bench.gateway, clock=bench.clock, spill=MemorySpill())
    subscription = a_subscription(QUEUE, make_channels="assume", **fields)
    async with app, app.consumer(subscription) as consumer:
        yield consumer


def test_the_gateway_says_that_it_has_sessions_but_no_choice_of_them() -> None:
    """R42, R76."""
    gateway = SqsGateway()

    assert isinstance(gateway, SessionGateway)
    assert gateway.capabilities.has_sessions
    assert not gateway.capabilities.has_session_choice


async def test_when_a_session_is_asked_for_by_its_id_then_it_says_why_not_and_what_instead() -> (
    None
):
    """R42, R76."""
    bench = Bench()

    with pytest.raises(UnsupportedOperation, match="accept the next session") as caught:
        await bench.gateway.accept_session(a_subscription(QUEUE), "ada", wait_s=0)

    assert "'ada'" in caught.value.operation
    assert bench.transport.asked == []


@pytest.mark.parametrize("session", [None, "ada"])
async def test_when_the_queue_is_a_standard_one_then_it_says_how_to_name_it(
    session: str | None,
) -> None:
    """R42, R76."""
    bench = Bench()

    with pytest.raises(UnsupportedOperation, match=r"name the queue 'orders\.fifo'"):
        await bench.gateway.accept_session(
            a_subscription("orders", ordering_guarantee=session is None), session, wait_s=0
        )

    assert bench.transport.asked == []


async def test_when_there_is_no_message_then_there_is_no_session() -> None:
    """R42."""
    bench = Bench()

    assert await bench.gateway.accept_session(a_subscription(QUEUE), None, wait_s=0) is None


async def test_when_other_groups_come_along_then_they_are_handed_back_at_once() -> None:
    """R42."""
    batch = [*messages("ada", "a1", "a2"), *messages("bob", "b1"), *messages("ada", "a3")]
    bench = Bench(receive_message=[received(*batch)])

    session = await bench.accept()

    assert session.id == "ada"
    assert bench.changed(HIDE) == [[("r-2", 0)]]
    taken = await session.receive(max_count=10, wait_s=0)
    assert [each.message.id for each in taken] == ["a1", "a2", "a3"]


async def test_when_messages_have_no_group_then_they_are_the_session_without_a_name() -> None:
    """R42: SQS has them in one group with those that are called as we call it there."""
    batch = [*messages(None, "n1", "n2"), *messages("-", "n3"), *messages("ada", "a1")]
    bench = Bench(receive_message=[received(*batch)])

    session = await bench.accept()

    assert session.id == ""
    assert bench.changed(HIDE) == [[("r-3", 0)]]


@pytest.mark.parametrize(
    ("fields", "count"),
    [
        ({}, 10),
        ({"ordering_guarantee": True}, 10),
        ({"max_receive_count": 3, "dead_letter_queue": "dead.fifo"}, 1),
    ],
    ids=["by default", "strict order", "native redrive"],
)
async def test_when_a_session_is_accepted_then_it_is_as_long_as_handing_back_allows(
    fields: dict[str, Any], count: int
) -> None:
    """R42: where SQS moves what was received too often, nothing is received to be handed back."""
    bench = Bench(receive_message=[received(*messages("ada", "a1"))])

    await bench.accept(**fields)

    [request] = bench.transport.requests("receive_message")
    assert request["MaxNumberOfMessages"] == count


async def test_when_handing_back_other_groups_fails_then_the_session_is_accepted_all_the_same() -> (
    None
):
    bench = Bench(
        receive_message=[received(*messages("ada", "a1"), *messages("bob", "b1"))],
        change_message_visibility_batch=[ConnectionFailed("orders", "away")],
    )

    assert (await bench.accept()).id == "ada"


async def test_when_accepting_is_cancelled_while_handing_back_then_nothing_stays_hidden() -> None:
    """R42, law 6."""
    unanswered = asyncio.Event()
    bench = Bench(
        receive_message=[received(*messages("ada", "a1", "a2"), *messages("bob", "b1"))],
        change_message_visibility_batch=[unanswered],
    )

    accepting = asyncio.create_task(bench.accept())
    await bench.clock.settle()
    accepting.cancel()
    await asyncio.wait([accepting])

    assert accepting.cancelled()
    assert bench.changed(HIDE) == [[("r-2", 0)], [("r-0", 0), ("r-1", 0)]]


async def test_when_a_message_is_deferred_then_what_comes_after_it_is_hidden_as_long() -> None:
    """R37, R42: the successors in hand and those that nobody has asked for yet."""
    bench = Bench(receive_message=[received(*messages("ada", "a1", "a2", "a3", "a4"))])
    session = await bench.accept()
    first, second, third = await session.receive(max_count=3, wait_s=0)

    assert await session.settle([ack(first)]) == []
    assert await session.settle([defer(second, seconds=60), abandon(third)]) == []

    assert bench.changed(DELETE) == [[("r-0", None)]]
    assert bench.changed(HIDE) == [[("r-1", 60), ("r-2", 60), ("r-3", 60)]]
    assert await session.receive(max_count=10, wait_s=0) == []
    assert session.lock_expires_at_s is None


async def test_when_a_deferral_is_not_answered_then_no_successor_is_given_out_before_it() -> None:
    """R37, R42: it may have been applied."""
    bench = Bench(
        receive_message=[received(*messages("ada", "a1", "a2"))],
        change_message_visibility_batch=[ConnectionFailed("orders", "away")],
    )
    session = await bench.accept()
    [first] = await session.receive(max_count=1, wait_s=0)

    with pytest.raises(ConnectionFailed):
        await session.settle([defer(first, seconds=5)])
    nothing = await session.receive(max_count=10, wait_s=0)
    await session.settle([defer(first, seconds=5)])

    assert nothing == []
    assert bench.changed(HIDE) == [[("r-0", 5), ("r-1", 5)]] * 2


async def test_when_a_successor_cannot_be_handed_back_then_closing_tries_again() -> None:
    bench = Bench(
        receive_message=[received(*messages("ada", "a1", "a2"))],
        change_message_visibility_batch=[failed(1, "InternalError", by_sender=False)],
    )
    session = await bench.accept()
    [first] = await session.receive(max_count=1, wait_s=0)

    assert await session.settle([abandon(first)]) == []
    await session.aclose()

    assert bench.changed(HIDE) == [[("r-0", 0), ("r-1", 0)], [("r-1", 0)]]


async def test_when_renewed_then_everything_in_flight_is_and_nothing_else() -> None:
    """R40, R42."""
    bench = Bench(receive_message=[received(*messages("ada", "a1", "a2", "a3"))])
    session = await bench.accept(lease=timedelta(seconds=30))
    first, _ = await session.receive(max_count=2, wait_s=0)
    await session.settle([ack(first)])
    await bench.clock.advance(10)

    await session.renew()

    assert bench.changed(HIDE) == [[("r-1", 30), ("r-2", 30)]]
    assert session.lock_expires_at_s == bench.clock.now_s() + 30


async def test_when_sqs_refuses_one_lease_then_the_lock_is_lost() -> None:
    """R41, R42."""
    bench = Bench(
        receive_message=[received(*messages("ada", "a1", "a2"))],
        change_message_visibility_batch=[failed(1, "ReceiptHandleIsInvalid", by_sender=True)],
    )
    session = await bench.accept()

    with pytest.raises(SessionLockLost) as caught:
        await session.renew()

    assert caught.value.session == "ada"


async def test_when_sqs_refuses_for_now_then_the_lock_is_as_long_as_it_was() -> None:
    """R41, R42."""
    bench = Bench(
        receive_message=[received(*messages("ada", "a1"))],
        change_message_visibility_batch=[failed(0, "RequestThrottled", by_sender=False)],
    )
    session = await bench.accept()
    end_s = session.lock_expires_at_s
    await bench.clock.advance(10)

    with pytest.raises(Throttled):
        await session.renew()

    assert session.lock_expires_at_s == end_s


async def test_when_twelve_hours_are_over_then_so_is_the_lock() -> None:
    """R41, R42: that is as long as SQS keeps a message in flight."""
    bench = Bench(receive_message=[received(*messages("ada", "a1"))])
    async with open_consumer(bench, lease=timedelta(hours=1)) as consumer:
        session = await consumer.accept_session(wait=timedelta(0))
        assert session is not None
        [delivery] = await session.receive()

        await bench.clock.advance(12 * 3600 - 5)
        await session.renew()
        await bench.clock.advance(5)

        with pytest.raises(SessionLockLost):
            await session.ack(delivery)
        assert bench.transport.requests(DELETE) == []


async def test_when_the_lock_is_lost_then_what_is_left_is_handed_back_and_not_acked() -> None:
    """R41, R42, law 3."""
    bench = Bench(
        receive_message=[received(*messages("ada", "a1", "a2", "a3"))],
        change_message_visibility_batch=[failed(0, "ReceiptHandleIsInvalid", by_sender=True)],
    )
    async with open_consumer(bench, lease=timedelta(seconds=30)) as consumer:
        session = await consumer.accept_session(wait=timedelta(0))
        assert session is not None
        first, second = await session.receive(2)
        await bench.clock.advance(15)

        for delivery in (first, second):
            with pytest.raises(SessionLockLost):
                await session.ack(delivery)
        await session.aclose()

    assert bench.transport.requests(DELETE) == []
    assert bench.changed(HIDE)[1:] == [[("r-1", 0), ("r-2", 0)]]


async def test_when_everything_is_settled_then_there_is_no_lock_left_to_lose() -> None:
    """R42: the session is over, whenever the caller looks."""
    bench = Bench(receive_message=[received(*messages("ada", "a1"))])
    async with open_consumer(bench, lease=timedelta(seconds=30)) as consumer:
        session = await consumer.accept_session(wait=timedelta(0))
        assert session is not None
        [delivery] = await session.receive()
        await session.ack(delivery)

        await bench.clock.advance(1_000)

        assert not await session.receive(10)
