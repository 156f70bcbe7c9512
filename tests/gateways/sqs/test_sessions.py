"""Sessions on a FIFO queue of a real server, through both SDKs (R34, R40–R42)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest

from gateways.sqs import AwsSettings, Credentials, SqsGateway, SqsSettings, TransportKind
from pump import App, RejectionReason, Subscription
from pump.consumer import Consumer
from pump.errors import InvalidReceipt, SessionLockLost, UnsupportedOperation
from pump.message import Delivery
from pump.session import Session
from pump.stores.spill import MemorySpill
from pump.testing.builders import a_message
from pump.testing.contract import WaitingClock
from tests.brokers.aws_account import AwsAccount

pytestmark = pytest.mark.broker

QUEUE = "orders.fifo"
LEASE = timedelta(seconds=30)
SHORT_LEASE = timedelta(seconds=6)
SOON = timedelta(seconds=1)
PATIENTLY = timedelta(seconds=10)


class Bench:
    """Any number of clients of one account."""

    def __init__(self, aws: AwsAccount, transport: TransportKind) -> None:
        self.clock = WaitingClock()
        self.aws = AwsSettings(
            region=aws.region,
            endpoint_url=aws.endpoint_url,
            credentials=Credentials(
                access_key_id=aws.access_key_id, secret_access_key=aws.secret_access_key
            ),
            transport=transport,
        )

    def new_app(self) -> App:
        gateway = SqsGateway(SqsSettings(aws=self.aws), self.clock)
        return App(gateway, clock=self.clock, spill=MemorySpill())

    @asynccontextmanager
    async def client(self, queue: str = QUEUE, **fields: Any) -> AsyncIterator[Consumer]:
        """A consumer with a connection of its own."""
        subscription = Subscription(
            **{"queue": queue, "request": dict, "lease": LEASE, "wait": PATIENTLY, **fields}
        )
        async with self.new_app() as app, app.consumer(subscription) as consumer:
            yield consumer

    async def send(self, group: str | None, *ids: str) -> None:
        async with self.new_app() as app:
            await app.gateway.producer(QUEUE).send([a_message(id=i, group=group) for i in ids])


@pytest.fixture(params=TransportKind, ids=lambda kind: kind.value)
async def bench(request: pytest.FixtureRequest, aws: AwsAccount) -> Bench:
    bench = Bench(aws, request.param)
    async with bench.client():
        return bench


def ids(deliveries: Iterable[Delivery]) -> list[str]:
    return [delivery.message.id for delivery in deliveries]


async def accepted(consumer: Consumer, wait: timedelta = PATIENTLY) -> Session:
    session = await consumer.accept_session(wait=wait)
    assert session is not None
    return session


async def test_when_groups_wait_then_each_is_a_session_of_its_own_in_order(bench: Bench) -> None:
    """R42: the group's id is the session's, and two sessions can be worked on side by side."""
    await bench.send("ada", "a1", "a2", "a3")
    await bench.send("a name that SQS refuses: ä", "b1", "b2")

    async with bench.client() as one, bench.client() as other:
        sessions = [await accepted(one), await accepted(other)]
        received = {session.id: ids(await session.receive(10)) for session in sessions}

    assert received == {"ada": ["a1", "a2", "a3"], "a name that SQS refuses: ä": ["b1", "b2"]}


async def test_when_a_session_is_held_then_nobody_else_gets_its_messages_until_it_is_closed(
    bench: Bench,
) -> None:
    """R40, R42: nor those that are sent meanwhile. The rest comes again, in order."""
    await bench.send("ada", "a1", "a2")

    async with bench.client() as one, bench.client() as other:
        async with await accepted(one) as session:
            [first] = await session.receive()
            await session.ack(first)
            await bench.send("ada", "a3")
            assert await other.accept_session(wait=SOON) is None
        async with await accepted(other) as again:
            assert ids(await again.receive(10)) == ["a2", "a3"]


async def test_when_a_session_takes_longer_than_a_lease_then_it_stays_locked(
    bench: Bench,
) -> None:
    """R40, R42: what was not even asked for is renewed too."""
    await bench.send("ada", "a1", "a2")

    async with bench.client(lease=SHORT_LEASE) as one, bench.client() as other:
        async with await accepted(one) as session:
            [first] = await session.receive()
            await bench.clock.advance(1.5 * SHORT_LEASE.total_seconds())
            assert await other.accept_session(wait=SOON) is None
            await session.ack(first)
            [second] = await session.receive()
            await session.ack(second)

        assert await other.accept_session(wait=SOON) is None


async def test_when_a_lock_runs_out_then_another_gets_the_session_and_the_first_acks_nothing(
    bench: Bench,
) -> None:
    """R41, R42, law 3."""
    await bench.send("ada", "a1", "a2")

    async with bench.client(renew=False, lease=SHORT_LEASE) as idle, bench.client() as other:
        lost = await accepted(idle)
        [stale] = await lost.receive()
        again = await accepted(other)

        with pytest.raises(SessionLockLost):
            await lost.ack(stale)
        with pytest.raises(SessionLockLost):
            await lost.receive()
        await lost.aclose()
        deliveries = await again.receive(10)
        assert ids(deliveries) == ["a1", "a2"]
        assert [each.attempt for each in deliveries] == [2, 2]
        for delivery in deliveries:
            await again.ack(delivery)


async def test_when_more_wait_than_one_receive_brings_then_the_session_ends_with_those(
    bench: Bench,
) -> None:
    """R42: the honest limit. `receive` does not wait for what cannot come."""
    await bench.send("ada", *(f"a{number:02}" for number in range(12)))

    sessions: list[list[str]] = []
    async with bench.client() as consumer:
        while session := await consumer.accept_session(wait=SOON):
            sessions.append([])
            async with session:
                while deliveries := await session.receive(4, wait=timedelta(hours=1)):
                    for delivery in deliveries:
                        await session.ack(delivery)
                    sessions[-1] += ids(deliveries)

    assert sessions == [[f"a{number:02}" for number in range(10)], ["a10", "a11"]]


@pytest.mark.parametrize("delay", [timedelta(0), timedelta(seconds=2)], ids=["at once", "later"])
async def test_when_a_message_is_deferred_then_it_comes_again_before_its_successors(
    bench: Bench, delay: timedelta
) -> None:
    """R37, R42: one successor was in hand, one was not."""
    await bench.send("ada", "a1", "a2", "a3", "a4")

    async with bench.client() as consumer:
        async with await accepted(consumer) as session:
            first, second, third = await session.receive(3)
            await session.ack(first)
            await session.defer(second, delay)
            with pytest.raises(InvalidReceipt):
                await session.ack(third)
            assert not await session.receive(10)
        async with await accepted(consumer) as again:
            deliveries = await again.receive(10)

    assert ids(deliveries) == ["a2", "a3", "a4"]
    assert {each.attempt for each in deliveries} == {2}


async def test_when_a_message_is_abandoned_then_it_comes_again_before_its_successors(
    bench: Bench,
) -> None:
    """R37, R42."""
    await bench.send("ada", "a1", "a2", "a3")

    async with bench.client() as consumer:
        async with await accepted(consumer) as session:
            [first] = await session.receive()
            await session.abandon(first)
        async with await accepted(consumer) as again:
            assert ids(await again.receive(10)) == ["a1", "a2", "a3"]


async def test_when_a_message_is_rejected_then_it_is_routed_and_the_session_goes_on(
    bench: Bench,
) -> None:
    """R25, R27, R42."""
    await bench.send("ada", "a1", "a2")

    async with bench.client(dead_letter_queue="dead.fifo") as consumer:
        async with await accepted(consumer) as session:
            first, second = await session.receive(2)
            await session.reject(first, RejectionReason.DELIVERY_ERROR, "no stock")
            await session.ack(second)
        assert await consumer.accept_session(wait=SOON) is None
    async with bench.client("dead.fifo") as consumer:
        [copy] = await consumer.receive(10)

    assert (copy.message.id, copy.message.group) == ("a1", "ada")
    assert copy.message.headers["rejectionMessage"] == "no stock"


async def test_when_messages_have_no_group_then_they_are_one_session_without_a_name(
    bench: Bench,
) -> None:
    """R42."""
    await bench.send(None, "n1", "n2")

    async with bench.client() as one, bench.client() as other, await accepted(one) as session:
        assert session.id == ""
        assert await other.accept_session(wait=SOON) is None
        assert ids(await session.receive(10)) == ["n1", "n2"]


async def test_when_what_sqs_cannot_do_is_asked_for_then_it_is_said(bench: Bench) -> None:
    """R42, R76."""
    async with bench.client() as consumer:
        with pytest.raises(UnsupportedOperation, match="chooses the message group"):
            await consumer.accept_session("ada")
    async with bench.client("standard") as consumer:
        with pytest.raises(UnsupportedOperation, match=r"name the queue 'standard\.fifo'"):
            await consumer.accept_session()
