"""A broker that is killed, as by a power cut, and started again on the same data."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from datetime import timedelta

import pytest

from gateways.rabbitmq import RabbitMQGateway, RabbitMQSettings
from pump.errors import GatewayError
from pump.subscription import Subscription
from pump.testing.builders import a_message, a_subscription
from tests.brokers.rabbitmq_server import RabbitMQ
from tests.gateways.work import a_job_subscription, make, send_surely, work_off

# Each test starts a server twice, which takes a busy machine a while.
pytestmark = [pytest.mark.broker, pytest.mark.timeout(300)]


@pytest.fixture
async def server(own_rabbitmq: Callable[[], RabbitMQ]) -> RabbitMQ:
    return await asyncio.to_thread(own_rabbitmq)


@pytest.fixture
async def gateway(server: RabbitMQ) -> AsyncIterator[RabbitMQGateway]:
    gateway = RabbitMQGateway(RabbitMQSettings.from_url(server.url()))
    await gateway.open()
    yield gateway
    await gateway.aclose()


async def test_when_the_broker_is_killed_and_comes_back_then_the_pump_handles_everything(
    server: RabbitMQ, gateway: RabbitMQGateway
) -> None:
    """R51, T3: every confirmed send survives, and nobody has to restart the pump."""
    subscription = a_job_subscription("orders")
    await make(gateway, subscription)
    await asyncio.to_thread(server.wait_for_queue, "orders")
    killings: list[asyncio.Task[None]] = []

    async def kill() -> None:
        await asyncio.to_thread(server.kill)
        await asyncio.to_thread(server.start)

    def kill_once(number: int) -> None:
        if number == 200 and not killings:
            killings.append(asyncio.create_task(kill()))

    handled = await work_off(gateway, subscription, jobs=400, disturb=kill_once)
    await killings[0]

    assert set(handled) == set(range(400))


async def test_when_the_broker_is_killed_then_delays_and_sessions_outlive_it(
    server: RabbitMQ, gateway: RabbitMQGateway
) -> None:
    """R40, R51: what is delayed still comes, and what was sorted is still in its order."""
    queue = a_subscription("orders", lease=timedelta(seconds=30), options={"sessions": True})
    await make(gateway, queue)
    words = ["a1", "b1", "a2", "a3"]
    for word in words:
        await gateway.producer("orders").send([a_message(word, group=word[0])])
    await gateway.producer("orders").send([a_message("a4", group="a")], delay_s=2)
    session = await gateway.accept_session(queue, "a", wait_s=5)
    assert session is not None
    [first, *_] = await session.receive(max_count=2, wait_s=5)
    for name in ("orders", "orders.session:a", "orders.session:b", "orders.delay.2048"):
        await asyncio.to_thread(server.wait_for_queue, name)

    await asyncio.to_thread(server.kill)
    await asyncio.to_thread(server.start)

    assert first.message.body == b"a1"
    assert await bodies_of(gateway, queue, "a", 4) == [b"a1", b"a2", b"a3", b"a4"]
    await send_surely(gateway, "orders", a_message("b2", group="b"))
    assert await bodies_of(gateway, queue, "b", 2) == [b"b1", b"b2"]


async def bodies_of(
    gateway: RabbitMQGateway, subscription: Subscription, group: str, count: int
) -> list[bytes]:
    """What a session has, accepted as often as it takes."""
    bodies: list[bytes] = []
    for _ in range(100):
        try:
            session = await gateway.accept_session(subscription, group, wait_s=5)
            if session is None:
                continue
            while len(bodies) < count:
                received = await session.receive(max_count=1, wait_s=5)
                bodies += [each.message.body for each in received]
            await session.aclose()
            return bodies
        except GatewayError:
            bodies.clear()
    raise AssertionError("never received")
