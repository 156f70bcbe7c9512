"""Sessions where connections are cut, and what is asked of them at once: R38, R40, R41."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from gateways.rabbitmq import RabbitMQGateway, RabbitMQSettings
from gateways.rabbitmq.consumer import RabbitMQConsumer
from pump.errors import GatewayError, QueueNotFound, SessionLockLost, UnsupportedOperation
from pump.outcome import Refusal, Settlement
from pump.testing.builders import a_message, a_subscription, ack, defer
from pump.testing.contract.sending import cancel_after
from tests.brokers.tcp_proxy import TcpProxy
from tests.gateways.work import make

from .conftest import OpenGateway
from .places import via
from .session_steps import WAIT_S, hold, send, take, with_sessions

pytestmark = pytest.mark.broker


async def test_when_the_owners_connection_is_cut_then_another_has_its_messages_in_order(
    open_gateway: OpenGateway, rabbitmq_url: str, name: str
) -> None:
    """R38, R41: what was in hand included; the first owner is told at its next call."""
    subscription = with_sessions(name)
    other = await open_gateway()
    await make(other, subscription)
    async with TcpProxy(RabbitMQSettings.from_url(rabbitmq_url).port) as proxy:
        gateway = await open_gateway(via(rabbitmq_url, proxy.port))
        await send(other, name, "a1 a2 b1 a3")
        session = await hold(gateway, subscription, "a")
        [first] = await session.receive(max_count=1, wait_s=WAIT_S)
        await session.receive(max_count=1, wait_s=WAIT_S)
        proxy.shut()

        successor = await hold(other, subscription, "a")

        assert await take(successor, 3) == "a1a2a3"
        with pytest.raises(SessionLockLost):
            await session.settle([ack(first)])
        with pytest.raises(SessionLockLost):
            await session.renew()
        await session.aclose()


async def test_when_connections_are_cut_while_groups_are_worked_off_then_each_keeps_its_order(
    open_gateway: OpenGateway, rabbitmq_url: str, name: str
) -> None:
    """R38, R51: a message may come twice, but none before one that was sent before it."""
    subscription = with_sessions(name)
    calm = await open_gateway()
    await make(calm, subscription)
    words = [f"{group}{number:02}" for number in range(15) for group in "abc"]
    seen: dict[str, list[str]] = {group: [] for group in "abc"}
    async with TcpProxy(RabbitMQSettings.from_url(rabbitmq_url).port) as proxy:
        gateway = await open_gateway(via(rabbitmq_url, proxy.port))
        await send(calm, name, " ".join(words))
        handled_count = 0
        while any(len(set(each)) < 15 for each in seen.values()):
            try:
                session = await gateway.accept_session(subscription, None, wait_s=1)
                while session and (received := await session.receive(max_count=3, wait_s=0.5)):
                    for delivery in received:
                        seen[session.id].append(delivery.message.body.decode())
                        handled_count += 1
                        if handled_count % 7 == 0:
                            proxy.sever()
                        await session.settle([ack(delivery)])
                if session:
                    await session.aclose()
            except GatewayError:
                continue

    for group, bodies in seen.items():
        first_sights = list(dict.fromkeys(bodies))
        assert first_sights == [word for word in words if word[0] == group]


async def test_when_a_message_of_a_session_fails_too_often_then_it_is_dead_lettered(
    gateway: RabbitMQGateway, name: str
) -> None:
    """R20, T7: its successor is freed, and was not counted meanwhile."""
    dead = a_subscription(f"{name}-dead")
    subscription = with_sessions(name, max_receive_count=2, dead_letter_queue=dead.queue)
    await make(gateway, subscription)
    await send(gateway, name, "a1 a2")
    session = await hold(gateway, subscription, "a")

    for _ in range(2):
        [head] = await session.receive(max_count=1, wait_s=WAIT_S)
        assert not await session.settle([defer(head)])

    [successor] = await session.receive(max_count=1, wait_s=WAIT_S)
    assert (successor.message.body, successor.attempt) == (b"a2", 1)
    [routed] = await gateway.consumer(dead).receive(max_count=1, wait_s=WAIT_S)
    assert routed.message.body == b"a1"
    assert routed.message.headers["attempts"] == "2"
    assert routed.message.headers["originalTopic"] == name


async def test_when_a_broker_counts_what_was_not_tried_then_the_next_owner_does_not(
    open_gateway: OpenGateway, name: str
) -> None:
    """T5, R38: with `max_receive_count`, and whatever process closes or accepts the session. A lock
    that was lost is another matter: what was received under it may have been tried.
    """
    dead = a_subscription(f"{name}-dead")
    subscription = with_sessions(name, max_receive_count=3, dead_letter_queue=dead.queue)
    gateway = await open_gateway()
    await make(gateway, subscription)
    await send(gateway, name, "a1 a2 a3")

    for _ in range(4):
        owner = await open_gateway()
        session = await hold(owner, subscription, "a")
        received = [each for _ in range(3) for each in await session.receive(max_count=1, wait_s=5)]
        assert [(each.message.body, each.attempt) for each in received] == [
            (b"a1", 1),
            (b"a2", 1),
            (b"a3", 1),
        ]
        await owner.aclose()
    lost = await hold(gateway, subscription, "a")
    [first] = await lost.receive(max_count=1, wait_s=WAIT_S)
    await gateway._link.aclose()
    gateway._link.allow()

    session = await hold(await open_gateway(), subscription, "a")
    again = await session.receive(max_count=3, wait_s=WAIT_S)
    assert (again[0].message.id, again[0].attempt) == (first.message.id, 2)


async def test_when_owners_die_over_a_message_then_its_last_delivery_is_the_last(
    open_gateway: OpenGateway, rabbitmq_url: str, name: str
) -> None:
    """R20, T5: the next owner moves it, and its successor comes."""
    dead = a_subscription(f"{name}-dead")
    subscription = with_sessions(name, max_receive_count=2, dead_letter_queue=dead.queue)
    calm = await open_gateway()
    await make(calm, subscription)
    await send(calm, name, "a1 a2")
    for attempt in (1, 2):
        async with TcpProxy(RabbitMQSettings.from_url(rabbitmq_url).port) as proxy:
            gateway = await open_gateway(via(rabbitmq_url, proxy.port))
            session = await hold(gateway, subscription, "a")
            [received] = await session.receive(max_count=1, wait_s=WAIT_S)
            assert (received.message.body, received.attempt) == (b"a1", attempt)
            proxy.shut()

    session = await hold(calm, subscription, "a")
    [successor] = await session.receive(max_count=2, wait_s=WAIT_S)

    # One of the dead may have had it in hand, too: that is how the end of what came back is found.
    assert successor.message.body == b"a2"
    [routed] = await calm.consumer(dead).receive(max_count=1, wait_s=WAIT_S)
    assert routed.message.body == b"a1"


@pytest.mark.parametrize("turns", [3, 10, 30, 60])
async def test_when_the_first_receive_after_a_dead_owner_is_cancelled_then_the_order_stays(
    open_gateway: OpenGateway, rabbitmq_url: str, name: str, turns: int
) -> None:
    """R38, R4: what came back comes in no order of the broker's, so all of it is asked for."""
    subscription = with_sessions(name)
    calm = await open_gateway()
    await make(calm, subscription)
    async with TcpProxy(RabbitMQSettings.from_url(rabbitmq_url).port) as proxy:
        gateway = await open_gateway(via(rabbitmq_url, proxy.port))
        await send(calm, name, "a1 a2 a3 a4 a5 a6")
        session = await hold(gateway, subscription, "a")
        for _ in range(5):
            await session.receive(max_count=1, wait_s=WAIT_S)
        proxy.shut()
    successor = await hold(calm, subscription, "a")

    receiving = asyncio.create_task(successor.receive(max_count=1, wait_s=WAIT_S))
    returned = await cancel_after(turns, receiving)

    assert [each.message.body for each in returned] in ([], [b"a1"])
    for each in returned:
        assert not await successor.settle([ack(each)])
    left = 6 - len(returned)
    assert await take(successor, left) == "a1a2a3a4a5a6"[-2 * left :]


async def test_when_one_delivery_is_settled_twice_at_once_then_the_second_is_refused(
    gateway: RabbitMQGateway, name: str
) -> None:
    """Law 1: told twice, the broker would end the session."""
    subscription = with_sessions(name)
    await make(gateway, subscription)
    await send(gateway, name, "a1 a2")
    session = await hold(gateway, subscription, "a")
    [first] = await session.receive(max_count=1, wait_s=WAIT_S)

    answers = await asyncio.gather(
        session.settle([ack(first), ack(first)]), session.settle([defer(first)])
    )

    assert [[each.is_final for each in refusals] for refusals in answers] == [[True], [True]]
    assert await take(session, 1) == "a2"


async def test_when_an_accept_is_cancelled_after_its_lock_was_taken_then_nothing_stays_locked(
    open_gateway: OpenGateway, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R40, law 6: though the broker has not yet heard that the note was followed."""
    gateway, other = await open_gateway(), await open_gateway()
    subscription = with_sessions(name)
    await make(gateway, subscription)
    await send(gateway, name, "a1")
    is_asked, may_go = asyncio.Event(), asyncio.Event()
    settle = RabbitMQConsumer.settle

    async def settle_late(
        consumer: RabbitMQConsumer, settlements: Sequence[Settlement]
    ) -> Sequence[Refusal]:
        is_asked.set()
        await may_go.wait()
        return await settle(consumer, settlements)

    monkeypatch.setattr(RabbitMQConsumer, "settle", settle_late)
    accepting = asyncio.create_task(gateway.accept_session(subscription, None, wait_s=WAIT_S))
    await is_asked.wait()
    accepting.cancel()
    [accepted] = await asyncio.gather(accepting, return_exceptions=True)
    may_go.set()
    if accepted is not None and not isinstance(accepted, BaseException):
        await accepted.aclose()

    assert await take(await hold(other, subscription, "a"), 1) == "a1"


async def test_when_messages_have_no_group_then_they_are_a_session_too(
    gateway: RabbitMQGateway, name: str
) -> None:
    """R40: the one whose id is empty."""
    subscription = with_sessions(name)
    await make(gateway, subscription)
    await gateway.producer(name).send([a_message("1"), a_message("2")])

    session = await hold(gateway, subscription, "")

    assert session.id == ""
    assert await take(session, 2) == "12"


async def test_when_messages_wait_in_sessions_then_they_are_counted_and_can_be_purged(
    gateway: RabbitMQGateway, name: str
) -> None:
    subscription = with_sessions(name)
    await make(gateway, subscription)
    await send(gateway, name, "a1 b1")
    await (await hold(gateway, subscription, "c")).aclose()

    visible = (await gateway.admin().stats(name)).visible
    listed = {each.name: each.visible for each in await gateway.admin().queues()}
    purged = await gateway.admin().purge(name)

    assert (visible, listed[name], purged) == (2, 2, 2)
    assert (await gateway.admin().stats(name)).visible == 0


async def test_when_a_queue_has_no_sessions_then_accepting_one_says_what_to_do(
    gateway: RabbitMQGateway, name: str
) -> None:
    """R76."""
    with pytest.raises(UnsupportedOperation, match="'sessions': True"):
        await gateway.accept_session(a_subscription(name), "a", wait_s=0)


async def test_when_a_queue_has_sessions_then_receiving_without_one_says_what_to_do(
    gateway: RabbitMQGateway, name: str
) -> None:
    """R76."""
    with pytest.raises(UnsupportedOperation, match="accept_session"):
        await gateway.consumer(with_sessions(name)).receive(max_count=1, wait_s=0)


async def test_when_the_queue_is_missing_then_accepting_a_session_names_it(
    gateway: RabbitMQGateway, name: str
) -> None:
    """R2."""
    with pytest.raises(QueueNotFound) as caught:
        await gateway.accept_session(with_sessions(name), "a", wait_s=0)

    assert caught.value.queue == name
