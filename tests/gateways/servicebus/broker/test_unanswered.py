"""Settlements that the service has applied without our hearing of it: nothing is lost by them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import pytest
from azure.servicebus.aio import ServiceBusClient

from gateways.servicebus import sdk
from pump.message import Delivery
from pump.outcome import Settlement
from pump.ports import ConsumerPort
from pump.subscription import Subscription
from pump.testing.builders import a_message, a_subscription, ack, defer
from tests.brokers.servicebus_peer.process import ServiceBusPeer
from tests.gateways.work import make

from .conftest import OpenGateway, settings_of

pytestmark = pytest.mark.broker


@pytest.fixture
def own(own_servicebus: Callable[[], ServiceBusPeer]) -> ServiceBusPeer:
    """A peer whose faults are nobody else's."""
    return own_servicebus()


async def unlock(peer: ServiceBusPeer, subscription: Subscription, delivery: Delivery) -> None:
    """Hand back a message behind its holder's back."""
    client: ServiceBusClient = await asyncio.to_thread(sdk.client_of, settings_of(peer), None)
    async with client, sdk.receiver_of(client, subscription.queue, read_s=0.1) as receiver:
        await sdk.settle(receiver, sdk.ABANDONED, [delivery.receipt])


async def settle_until_final(consumer: ConsumerPort, settlements: Sequence[Settlement]) -> int:
    """Settle as the pump does it, again while that may help; how many were refused for good."""
    lost_count = 0
    for _ in range(5):
        refusals = await consumer.settle(settlements)
        lost_count += sum(refusal.is_final for refusal in refusals)
        left = {refusal.delivery for refusal in refusals if not refusal.is_final}
        settlements = [each for each in settlements if each.delivery in left]
        if not settlements:
            return lost_count
    raise AssertionError("never settled")


async def test_when_the_answer_to_an_ack_is_lost_then_asking_again_finds_it_settled(
    open_gateway: OpenGateway, own: ServiceBusPeer, name: str
) -> None:
    """Law 1: the lock is gone because the message is, and that is no lost lease."""
    gateway = await open_gateway(own)
    subscription = a_subscription(name)
    await make(gateway, subscription)
    consumer = gateway.consumer(subscription)
    await gateway.producer(name).send([a_message("A"), a_message("B")])
    held = await consumer.receive(max_count=2, wait_s=30)
    own.lose("update-disposition", 1)

    lost_count = await settle_until_final(consumer, [ack(each) for each in held])

    assert lost_count == 0
    assert (await gateway.admin().stats(name)).visible == 0


async def test_when_the_answer_to_a_deferral_is_lost_then_the_message_comes_again_once(
    open_gateway: OpenGateway, own: ServiceBusPeer, name: str
) -> None:
    """Law 2: the original is completed, so the copy is all there is."""
    gateway = await open_gateway(own)
    subscription = a_subscription(name)
    await make(gateway, subscription)
    consumer = gateway.consumer(subscription)
    await gateway.producer(name).send([a_message()])
    [held] = await consumer.receive(max_count=1, wait_s=30)
    own.lose("update-disposition", 1)

    lost_count = await settle_until_final(consumer, [defer(held, seconds=1)])

    assert lost_count == 0
    assert own.counts()["schedule-message"] == 1
    [again] = await consumer.receive(max_count=2, wait_s=30)
    assert (again.message, again.attempt) == (held.message, 2)
    assert not await consumer.settle([ack(again)])
    assert (await gateway.admin().stats(name)).visible == 0


async def test_when_the_answer_to_a_copy_is_lost_then_another_is_sent_and_it_comes_twice(
    open_gateway: OpenGateway, own: ServiceBusPeer, name: str
) -> None:
    """Law 2: nobody knows the number of the first, so it cannot be taken back; better both."""
    gateway = await open_gateway(own)
    subscription = a_subscription(name)
    await make(gateway, subscription)
    consumer = gateway.consumer(subscription)
    await gateway.producer(name).send([a_message()])
    [held] = await consumer.receive(max_count=1, wait_s=30)
    own.lose("schedule-message", 1)

    lost_count = await settle_until_final(consumer, [defer(held, seconds=1)])

    assert lost_count == 0
    assert own.counts()["schedule-message"] == 2
    for _ in range(2):
        [again] = await consumer.receive(max_count=1, wait_s=30)
        assert (again.message, again.attempt) == (held.message, 2)
        assert not await consumer.settle([ack(again)])
    stats = await gateway.admin().stats(name)
    assert (stats.visible, stats.delayed) == (0, 0)


async def test_when_a_deferral_went_unanswered_and_its_lock_is_lost_then_the_copy_is_taken_back(
    open_gateway: OpenGateway, own: ServiceBusPeer, name: str
) -> None:
    """Law 1: the original is there, so it is what comes again."""
    gateway = await open_gateway(own)
    subscription = a_subscription(name)
    await make(gateway, subscription)
    consumer = gateway.consumer(subscription)
    await gateway.producer(name).send([a_message()])
    [held] = await consumer.receive(max_count=1, wait_s=30)
    # Refused as busy until that is given up: nothing was applied, and a copy is scheduled.
    own.throttle("update-disposition", 5)
    [refusal] = await consumer.settle([defer(held, seconds=60)])
    assert not refusal.is_final
    own.expire_locks()

    [refusal] = await consumer.settle([defer(held, seconds=60)])

    assert refusal.is_final
    stats = await gateway.admin().stats(name)
    assert (stats.visible, stats.delayed) == (1, 0)


@pytest.mark.parametrize("is_in_part", [True, False], ids=["in part", "all or none"])
@pytest.mark.parametrize("delay_s", [0.0, 60.0], ids=["ack", "defer"])
async def test_when_one_lock_of_many_is_lost_then_only_that_one_is_refused(
    open_gateway: OpenGateway, own: ServiceBusPeer, name: str, delay_s: float, is_in_part: bool
) -> None:
    """R58: whether or not the service has settled the others at the first request."""
    gateway = await open_gateway(own)
    subscription = a_subscription(name)
    await make(gateway, subscription)
    consumer = gateway.consumer(subscription)
    await gateway.producer(name).send([a_message(str(number)) for number in range(5)])
    held = await consumer.receive(max_count=5, wait_s=30)
    await unlock(own, subscription, held[2])
    if is_in_part:
        own.settle_in_part()

    refusals = await consumer.settle(
        [defer(each, seconds=delay_s) if delay_s else ack(each) for each in held]
    )

    assert [refusal.delivery for refusal in refusals] == [held[2]]
    assert refusals[0].is_final
    stats = await gateway.admin().stats(name)
    assert (stats.visible, stats.delayed) == (1, 4 if delay_s else 0)
