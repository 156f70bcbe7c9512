"""The steps of tests of sessions: send, hold, take."""

from __future__ import annotations

from datetime import timedelta

from gateways.rabbitmq import RabbitMQGateway
from pump.clock import SYSTEM_CLOCK
from pump.errors import QueueNotFound
from pump.ports import SessionPort
from pump.subscription import Subscription
from pump.testing.builders import a_message, a_subscription, ack
from tests.gateways.work import send_surely

WAIT_S = 10.0


def with_sessions(queue: str, **fields: object) -> Subscription:
    fields.setdefault("lease", timedelta(seconds=30))
    return a_subscription(queue, options={"sessions": True}, **fields)


async def send(gateway: RabbitMQGateway, queue: str, words: str) -> None:
    for word in words.split():
        await send_surely(gateway, queue, a_message(word, group=word[0]))


async def hold(
    gateway: RabbitMQGateway, subscription: Subscription, session: str | None
) -> SessionPort:
    accepted = await gateway.accept_session(subscription, session, wait_s=WAIT_S)
    assert accepted is not None
    return accepted


async def take(session: SessionPort, count: int) -> str:
    """The bodies of so many messages, which are acked."""
    bodies = ""
    for _ in range(count):
        [received] = await session.receive(max_count=1, wait_s=WAIT_S)
        bodies += received.message.body.decode()
        assert not await session.settle([ack(received)])
    return bodies


async def until_gone(gateway: RabbitMQGateway, queue: str) -> None:
    for _ in range(500):
        try:
            await gateway._topology.count(queue)
        except QueueNotFound:
            return
        await SYSTEM_CLOCK.sleep(0.02)
    raise AssertionError(f"{queue} is still there")
