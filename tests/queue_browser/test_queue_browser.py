"""What a survey sees, and what it leaves behind, on queues in this process (R78)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Sequence
from datetime import timedelta
from typing import TypeVar

import pytest
import structlog.testing

from gateways.memory import MemoryGateway
from pump.errors import (
    ConfigurationError,
    ConnectionFailed,
    InvalidReceipt,
    QueueNotFound,
    Throttled,
)
from pump.message import Delivery, Message
from pump.outcome import ABANDON, Refusal, Settlement
from pump.ports import ConsumerPort, Gateway
from pump.queue_browser import Seen, browse
from pump.subscription import MakeChannels, QueueSpec, Subscription
from pump.testing.virtual_clock import VirtualClock
from tests.core.faulty_gateway import FaultyGateway

_T = TypeVar("_T")
AWAY = ConnectionFailed("the broker", "nobody answers")
LEASE = timedelta(seconds=60)


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def gateway(clock: VirtualClock) -> FaultyGateway:
    """Without a peek, so that a look is a receive; ten at a time."""
    return FaultyGateway(clock, has_peek=False, receive_batch=10, settle_batch=10, max_pollers=3)


async def put(gateway: Gateway, count: int, queue: str = "orders") -> list[str]:
    await gateway.open()
    await gateway.admin().ensure(QueueSpec(name=queue), MakeChannels.CREATE)
    messages = [Message(body=b"%d" % number, type="Order") for number in range(count)]
    return list(await gateway.producer(queue).send(messages))


async def in_time(clock: VirtualClock, work: Awaitable[_T]) -> _T:
    task = asyncio.ensure_future(work)
    while not task.done():
        await clock.advance(1)
    return task.result()


async def look(
    gateway: Gateway, clock: VirtualClock, *, max_count: int | None = None
) -> list[Seen]:
    seen: list[Seen] = []
    async with browse(gateway, "orders", max_count=max_count, lease=LEASE, clock=clock) as parts:
        async for part in parts:
            seen += part
    return seen


def ids(seen: Sequence[Seen]) -> list[str]:
    return [each.message.id for each in seen]


async def visible(gateway: Gateway) -> int:
    return (await gateway.admin().stats("orders")).visible


async def test_when_the_provider_can_be_asked_then_no_delivery_is_counted(
    clock: VirtualClock,
) -> None:
    """R78: a peek takes no lease and counts no attempt."""
    gateway = MemoryGateway(clock)
    sent = await put(gateway, 25)

    seen = await look(gateway, clock)

    assert ids(seen) == sent
    assert {each.attempt for each in seen} == {None}
    port = gateway.consumer(Subscription(queue="orders", request=Message))
    assert {each.attempt for each in await port.receive(max_count=100, wait_s=0)} == {1}


async def test_when_a_look_is_a_receive_then_all_is_seen_once_and_handed_back(
    gateway: FaultyGateway, clock: VirtualClock
) -> None:
    """R78: everything is receivable again at once, without waiting for a lease to end."""
    sent = await put(gateway, 95)

    seen = await in_time(clock, look(gateway, clock))

    assert sorted(ids(seen)) == sorted(sent)
    assert await visible(gateway) == 95
    assert {action for _, action in gateway.record.actions()} == {ABANDON}


async def test_when_a_count_is_given_then_no_more_is_received(
    gateway: FaultyGateway, clock: VirtualClock
) -> None:
    """R78: what is not to be seen is not touched."""
    await put(gateway, 50)

    seen = await in_time(clock, look(gateway, clock, max_count=23))

    assert len(seen) == len(gateway.record.received) == 23
    assert await visible(gateway) == 50


@pytest.mark.parametrize("has_peek", [True, False])
async def test_when_the_count_is_zero_then_nothing_is_seen(
    clock: VirtualClock, has_peek: bool
) -> None:
    """R78: zero is a count like any other."""
    gateway = FaultyGateway(clock, has_peek=has_peek)
    await put(gateway, 5)

    assert await in_time(clock, look(gateway, clock, max_count=0)) == []
    assert gateway.record.received == []


async def test_when_the_count_is_negative_then_it_is_refused(
    gateway: FaultyGateway, clock: VirtualClock
) -> None:
    """R78: a count below zero is a mistake, not a wish for all."""
    await put(gateway, 1)

    with pytest.raises(ConfigurationError, match="max_count=-1"):
        await look(gateway, clock, max_count=-1)


@pytest.mark.parametrize("has_peek", [True, False])
async def test_when_there_is_no_such_queue_then_the_error_names_it(
    clock: VirtualClock, has_peek: bool
) -> None:
    """R78: a queue that is not there is not an empty one."""
    gateway = FaultyGateway(clock, has_peek=has_peek)
    await gateway.open()

    with pytest.raises(QueueNotFound, match="orders"):
        await in_time(clock, look(gateway, clock))


async def test_when_the_broker_is_away_for_a_moment_then_the_survey_goes_on(
    gateway: FaultyGateway, clock: VirtualClock
) -> None:
    """R78: an error that passes is waited for."""
    sent = await put(gateway, 30)
    gateway.fail("receive", AWAY, times=3)

    seen = await in_time(clock, look(gateway, clock))

    assert sorted(ids(seen)) == sorted(sent)


async def test_when_the_broker_stays_away_then_its_error_is_raised_and_all_handed_back(
    gateway: FaultyGateway, clock: VirtualClock
) -> None:
    """R78: half a survey is an error, and holds nothing."""
    await put(gateway, 30)
    seen: list[Seen] = []

    async def interrupted() -> None:
        async with browse(gateway, "orders", lease=LEASE, clock=clock) as parts:
            async for part in parts:
                seen.extend(part)
                gateway.fail("receive", AWAY)

    with pytest.raises(ConnectionFailed):
        await in_time(clock, interrupted())
    assert len(seen) == 10
    assert await visible(gateway) == 30


async def test_when_handing_back_fails_half_way_then_it_is_tried_again(
    gateway: FaultyGateway, clock: VirtualClock
) -> None:
    """R78: what was refused for now is handed back a moment later."""
    await put(gateway, 40)
    gateway.fail("settle", Throttled("orders"), times=3)

    await in_time(clock, look(gateway, clock))

    assert await visible(gateway) == 40


async def test_when_nothing_can_be_handed_back_then_it_is_said_and_comes_by_itself(
    gateway: FaultyGateway, clock: VirtualClock
) -> None:
    """R78: the survey is whole all the same; its messages wait for the end of their leases."""
    sent = await put(gateway, 40)
    gateway.fail("settle", AWAY)

    with structlog.testing.capture_logs() as lines:
        seen = await in_time(clock, look(gateway, clock))

    assert sorted(ids(seen)) == sorted(sent)
    [said] = [line for line in lines if line["event"] == "settle.failed"]
    assert said["count"] == 40
    assert await visible(gateway) == 0
    await clock.advance(61)
    assert await visible(gateway) == 40


async def test_when_the_caller_stops_early_then_what_it_saw_is_handed_back(
    gateway: FaultyGateway, clock: VirtualClock
) -> None:
    """R78: nobody has to look to the end."""
    await put(gateway, 40)

    async def first() -> int:
        async with browse(gateway, "orders", lease=LEASE, clock=clock) as parts:
            async for part in parts:
                return len(part)
        return 0

    assert await in_time(clock, first()) == 10
    assert await visible(gateway) == 40


async def test_when_the_survey_is_cancelled_twice_then_all_is_handed_back(
    gateway: FaultyGateway, clock: VirtualClock
) -> None:
    """R78: cancellation is not swallowed, and not a way to keep messages."""
    await put(gateway, 20)
    reached = asyncio.Event()

    async def hold() -> None:
        async with browse(gateway, "orders", lease=LEASE, clock=clock) as parts:
            async for _ in parts:
                reached.set()
                await asyncio.Event().wait()

    task = asyncio.create_task(hold())
    await reached.wait()
    gateway.fail("settle", Throttled("orders"), times=1)
    task.cancel()
    # The first hand-back was refused, and the second waits for its turn.
    await clock.advance(0)
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await in_time(clock, task)
    assert await visible(gateway) == 20


async def test_when_the_caller_takes_long_then_the_leases_are_kept(
    gateway: FaultyGateway, clock: VirtualClock
) -> None:
    """R78: nobody else receives a message while it is looked at."""
    await put(gateway, 10)

    async with browse(gateway, "orders", lease=LEASE, clock=clock) as parts:
        [_] = [part async for part in _once(parts)]
        await clock.advance(600)
        assert await visible(gateway) == 0

    assert await visible(gateway) == 10


async def test_when_leases_are_lost_then_messages_that_come_again_are_not_seen_again(
    gateway: FaultyGateway, clock: VirtualClock
) -> None:
    """R78: a message has one row in a survey, also when its lease was lost; and it ends."""
    sent = await put(gateway, 20)
    gateway.fail("extend", AWAY)
    seen: list[str] = []

    async def slowly() -> None:
        async with browse(gateway, "orders", lease=LEASE, clock=clock) as parts:
            async for part in parts:
                seen.extend(ids(part))
                await clock.sleep(90)

    await in_time(clock, slowly())

    assert sorted(seen) == sorted(sent)
    assert len(gateway.record.received) > 20
    assert await visible(gateway) == 20


async def test_when_settlements_are_refused_for_good_then_the_survey_ends_in_peace(
    clock: VirtualClock,
) -> None:
    """R78: a lease that is over needs no hand-back."""
    gateway = _Refusing(clock, has_peek=False)
    await put(gateway, 10)

    with structlog.testing.capture_logs() as lines:
        assert len(await in_time(clock, look(gateway, clock))) == 10

    assert lines == []


class _Refusing(FaultyGateway):
    """Takes every lease for lost when it is to be settled."""

    def consumer(self, subscription: Subscription) -> ConsumerPort:
        port = super().consumer(subscription)

        class Port:
            receive = staticmethod(port.receive)
            extend = staticmethod(port.extend)
            aclose = staticmethod(port.aclose)

            async def settle(self, settlements: Sequence[Settlement]) -> Sequence[Refusal]:
                return [_lost(each.delivery) for each in settlements]

        return Port()


def _lost(delivery: Delivery) -> Refusal:
    return Refusal(delivery, InvalidReceipt("orders", delivery.receipt))


async def _once(parts: AsyncIterator[Sequence[Seen]]) -> AsyncIterator[Sequence[Seen]]:
    async for part in parts:
        yield part
        return
