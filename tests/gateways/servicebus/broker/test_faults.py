"""A service that is busy, says no, or has other ideas about who holds what."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from gateways.servicebus import ServiceBusGateway, sdk
from pump.clock import SYSTEM_CLOCK
from pump.errors import (
    AccessDenied,
    MessageTooLarge,
    SendFailed,
    Throttled,
    UnsupportedOperation,
)
from pump.message import Delivery
from pump.subscription import MakeChannels, QueueSpec
from pump.testing.builders import a_message, a_subscription, ack, defer
from tests.brokers.servicebus_peer.process import ServiceBusPeer
from tests.gateways.work import make

from .conftest import OpenGateway

pytestmark = pytest.mark.broker


@pytest.fixture
def own(own_servicebus: Callable[[], ServiceBusPeer]) -> ServiceBusPeer:
    """A peer whose faults are nobody else's."""
    return own_servicebus()


async def test_when_the_service_is_busy_for_a_while_then_every_operation_succeeds_in_the_end(
    open_gateway: OpenGateway, own: ServiceBusPeer, name: str
) -> None:
    """R52: backed off, bounded, and nothing done twice."""
    gateway = await open_gateway(own)
    subscription = a_subscription(name)
    for operation in ("send", "update-disposition", "renew-lock", "schedule-message", "http"):
        own.throttle(operation, 2)

    await make(gateway, subscription)
    consumer = gateway.consumer(subscription)
    await gateway.producer(name).send([a_message("A"), a_message("B")])
    [one, other] = await consumer.receive(max_count=2, wait_s=30)
    assert not await consumer.extend([one, other], lease_s=60)
    assert not await consumer.settle([ack(one), defer(other, seconds=0.1)])

    [again] = await consumer.receive(max_count=2, wait_s=30)
    assert (again.message.body, again.attempt) == (b"B", 2)
    assert own.counts()["send"] == 3


async def test_when_the_service_stays_busy_then_the_call_says_so(
    open_gateway: OpenGateway, own: ServiceBusPeer, name: str
) -> None:
    """R52: the attempts are bounded."""
    gateway = await open_gateway(own)
    await make(gateway, a_subscription(name))
    own.throttle("send", 5)

    with pytest.raises(Throttled):
        await gateway.producer(name).send([a_message()])

    assert own.counts()["send"] == 5


async def test_when_the_key_is_not_known_then_every_call_says_what_was_denied(
    open_gateway: OpenGateway, name: str
) -> None:
    gateway = await open_gateway(key_name="nobody")

    with pytest.raises(AccessDenied, match="sending"):
        await gateway.producer(name).send([a_message()])
    with pytest.raises(AccessDenied, match="receiving"):
        await gateway.consumer(a_subscription(name)).receive(max_count=1, wait_s=0.0)
    with pytest.raises(AccessDenied, match="creating"):
        await gateway.admin().ensure(QueueSpec(name=name), MakeChannels.CREATE)


async def test_when_the_service_has_taken_a_lock_back_then_its_receipt_is_refused_for_good(
    open_gateway: OpenGateway, own: ServiceBusPeer, name: str
) -> None:
    """R6, R9: although our lease is not over."""
    gateway = await open_gateway(own)
    subscription = a_subscription(name)
    await make(gateway, subscription)
    consumer = gateway.consumer(subscription)
    await gateway.producer(name).send([a_message("A"), a_message("B")])
    held = await consumer.receive(max_count=2, wait_s=30)

    own.expire_locks()

    refusals = [*await consumer.settle([ack(held[0])]), *await consumer.extend(held, lease_s=300)]
    assert [refusal.is_final for refusal in refusals] == [True, True, True]
    again = await consumer.receive(max_count=2, wait_s=30)
    assert {each.attempt for each in again} == {2}
    assert not await consumer.settle([ack(each) for each in again])


async def test_when_a_lock_is_lost_before_its_retry_is_complete_then_the_copy_is_taken_back(
    open_gateway: OpenGateway, own: ServiceBusPeer, name: str
) -> None:
    """Law 1: a refused deferral leaves the message once, not twice."""
    gateway = await open_gateway(own)
    subscription = a_subscription(name)
    await make(gateway, subscription)
    consumer = gateway.consumer(subscription)
    await gateway.producer(name).send([a_message()])
    [held] = await consumer.receive(max_count=1, wait_s=30)
    own.expire_locks()

    [refusal] = await consumer.settle([defer(held, seconds=60)])

    assert refusal.is_final
    assert own.counts()["cancel-scheduled-message"] == 1
    stats = await gateway.admin().stats(name)
    assert (stats.visible, stats.delayed) == (1, 0)


async def test_when_a_lease_is_longer_than_the_lock_then_the_lock_is_kept_meanwhile(
    open_gateway: OpenGateway, own: ServiceBusPeer, name: str
) -> None:
    """R15: the longest lock is five minutes, a lease may be an hour."""
    gateway = await open_gateway(own)
    await make(gateway, a_subscription(name, lease=timedelta(seconds=10)))
    patient = a_subscription(name, lease=timedelta(hours=1))
    consumer = gateway.consumer(patient)
    await gateway.producer(name).send([a_message()])
    # Opens the link by which it will be renewed: half a lock may be short for that.
    await gateway.admin().peek(name)
    [held] = await consumer.receive(max_count=1, wait_s=30)

    await SYSTEM_CLOCK.sleep(10.5)

    assert own.counts()["renew-lock"] >= 1
    assert not await consumer.settle([ack(held)])


async def test_when_a_batch_is_too_large_then_it_is_split_and_a_message_alone_is_named(
    gateway: ServiceBusGateway, name: str
) -> None:
    """R58."""
    subscription = a_subscription(name)
    await make(gateway, subscription)
    fitting = [a_message(b"x" * 100_000) for _ in range(5)]
    too_large = a_message(b"x" * 300_000)

    with pytest.raises(SendFailed) as caught:
        await gateway.producer(name).send([*fitting, too_large])

    assert [id_ for id_, _ in caught.value.failures] == [too_large.id]
    assert isinstance(caught.value.failures[0][1], MessageTooLarge)
    assert (await gateway.admin().stats(name)).visible == 5


async def test_when_large_messages_are_deferred_together_then_their_copies_go_in_several_requests(
    open_gateway: OpenGateway, own: ServiceBusPeer, name: str
) -> None:
    """R17, R58: each comes again, counted."""
    gateway = await open_gateway(own)
    subscription = a_subscription(name)
    await make(gateway, subscription)
    sent = [a_message(b"x" * 100_000) for _ in range(5)]
    await gateway.producer(name).send(sent)
    consumer = gateway.consumer(subscription)
    held: list[Delivery] = []
    while len(held) < 5:
        held += await consumer.receive(max_count=5, wait_s=30)

    assert not await consumer.settle([defer(each, seconds=0.2) for each in held])

    again: list[Delivery] = []
    while len(again) < 5:
        again += await consumer.receive(max_count=5, wait_s=30)
    assert {each.message.id for each in again} == {each.id for each in sent}
    assert {each.attempt for each in again} == {2}
    assert own.counts()["schedule-message"] == 3


async def test_when_headers_are_too_large_then_the_message_is_refused_before_it_is_sent(
    gateway: ServiceBusGateway, name: str
) -> None:
    """R58: Service Bus takes 64 KB of them."""
    await make(gateway, a_subscription(name))

    with pytest.raises(MessageTooLarge):
        await gateway.producer(name).send([a_message(headers={"a": "x" * 70_000})])


async def test_when_a_queue_is_not_to_be_sent_to_then_asking_for_a_producer_is_an_error(
    gateway: ServiceBusGateway, name: str
) -> None:
    """R76."""
    with pytest.raises(UnsupportedOperation):
        gateway.producer(f"{name}/$DeadLetterQueue")


async def test_when_a_delay_ends_while_a_queue_is_purged_then_everything_is_gone_all_the_same(
    gateway: ServiceBusGateway, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was seen waiting for its time cannot be cancelled any more."""
    await make(gateway, a_subscription(name))
    producer = gateway.producer(name)
    await producer.send([a_message("A")], delay_s=1.0)
    await producer.send([a_message("B")], delay_s=60.0)
    peek = sdk.peek

    async def peek_slowly(*question: Any) -> Any:
        seen = await peek(*question)
        await SYSTEM_CLOCK.sleep(1.5 if seen else 0.0)
        return seen

    monkeypatch.setattr(sdk, "peek", peek_slowly)

    assert await gateway.admin().purge(name) == 2

    stats = await gateway.admin().stats(name)
    assert (stats.visible, stats.delayed) == (0, 0)
