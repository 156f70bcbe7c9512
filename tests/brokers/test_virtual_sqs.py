"""Virtual time with sockets in between: it stands still while anything is under way."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from gateways.sqs import AwsSettings, Credentials, SqsGateway, SqsSettings, TransportKind
from pump.clock import SYSTEM_CLOCK
from pump.ports import ConsumerPort
from pump.serving import ServerOptions
from pump.subscription import MakeChannels, Subscription
from pump.testing.builders import a_message, a_subscription

from .virtual_sqs import NetworkClock

WAIT_S = 20.0


@pytest.fixture
async def clock() -> NetworkClock:
    return NetworkClock()


@pytest.fixture(params=list(TransportKind), ids=[kind.value for kind in TransportKind])
async def gateway(
    request: pytest.FixtureRequest, clock: NetworkClock, no_aws_settings: None
) -> AsyncIterator[SqsGateway]:
    async with clock.serving(ServerOptions(port=0)) as server:
        settings = SqsSettings(
            aws=AwsSettings(
                region="eu-west-1",
                endpoint_url=server.endpoint,
                credentials=Credentials(access_key_id="0" * 12, secret_access_key="secret"),
                transport=request.param,
            )
        )
        gateway = clock.gateway(settings)
        await gateway.open()
        yield gateway
        await gateway.aclose()


@pytest.fixture
async def subscription(gateway: SqsGateway) -> Subscription:
    made = a_subscription("orders", lease=timedelta(seconds=30))
    for spec in made.queue_specs():
        await gateway.admin().ensure(spec, MakeChannels.CREATE)
    return made


@pytest.fixture
def consumer(gateway: SqsGateway, subscription: Subscription) -> ConsumerPort:
    return gateway.consumer(subscription)


async def test_when_calls_are_under_way_then_settling_waits_for_their_answers(
    clock: NetworkClock, gateway: SqsGateway, subscription: Subscription
) -> None:
    producer = gateway.producer(subscription.queue)
    sending = [asyncio.create_task(producer.send([a_message()])) for _ in range(5)]

    await clock.settle()

    assert all(task.done() for task in sending)
    await asyncio.gather(*sending)


async def test_when_a_poll_waits_at_the_server_then_time_passes_it_by(
    clock: NetworkClock, consumer: ConsumerPort
) -> None:
    began_s = clock.now_s()
    polling = asyncio.create_task(consumer.receive(max_count=1, wait_s=WAIT_S))

    await clock.advance(WAIT_S - 1)
    assert not polling.done()
    await clock.advance(1)

    assert polling.done()
    assert await polling == []
    assert clock.now_s() - began_s == WAIT_S


async def test_when_a_consumer_closes_then_time_passes_until_the_poll_it_gave_up_ends(
    clock: NetworkClock, consumer: ConsumerPort
) -> None:
    began_s = clock.now_s()
    polling = asyncio.create_task(consumer.receive(max_count=1, wait_s=WAIT_S))
    await clock.settle()
    polling.cancel()
    await clock.settle()

    await consumer.aclose()

    assert clock.now_s() - began_s == WAIT_S


async def test_when_nobody_closes_or_advances_then_no_time_passes(
    clock: NetworkClock, consumer: ConsumerPort
) -> None:
    began_s = clock.now_s()
    polling = asyncio.create_task(consumer.receive(max_count=1, wait_s=WAIT_S))

    await clock.settle()
    await SYSTEM_CLOCK.sleep(0.05)

    assert clock.now_s() == began_s
    polling.cancel()
    await asyncio.wait([polling])


async def test_when_two_close_while_a_test_advances_then_it_gets_where_it_wanted(
    clock: NetworkClock, gateway: SqsGateway, subscription: Subscription
) -> None:
    consumers = [gateway.consumer(subscription) for _ in range(2)]
    polls = [asyncio.create_task(each.receive(max_count=1, wait_s=WAIT_S)) for each in consumers]
    await clock.settle()
    for poll in polls:
        poll.cancel()
    began_s = clock.now_s()

    closing = [asyncio.create_task(each.aclose()) for each in consumers]
    await clock.advance(WAIT_S - 1)
    assert not any(task.done() for task in closing)
    assert clock.now_s() - began_s == WAIT_S - 1
    await asyncio.gather(*closing)

    assert clock.now_s() - began_s == WAIT_S
