"""Sessions, where the contract does not look: odd groups, foreign states, lost links."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from gateways.servicebus import ServiceBusGateway, sdk
from gateways.servicebus.session import ServiceBusSession
from pump.clock import SYSTEM_CLOCK, yield_to_loop
from pump.errors import InvalidReceipt, QueueMismatch, SessionLockLost, UnsupportedOperation
from pump.subscription import MakeChannels, QueueSpec, Subscription
from pump.testing.builders import a_message, a_subscription, abandon, ack, defer
from tests.brokers.servicebus_peer.process import ServiceBusPeer
from tests.brokers.tcp_proxy import TcpProxy
from tests.gateways.work import make

from .conftest import OpenGateway

pytestmark = pytest.mark.broker
LEASE = timedelta(seconds=20)


def with_sessions(name: str, **fields: Any) -> Subscription:
    fields.setdefault("lease", LEASE)
    return a_subscription(name, options={"sessions": True}, **fields)


async def accept(
    gateway: ServiceBusGateway, subscription: Subscription, session: str | None = None
) -> ServiceBusSession:
    port = await gateway.accept_session(subscription, session, wait_s=30)
    assert isinstance(port, ServiceBusSession)
    return port


@pytest.mark.parametrize("group", ["ada", "x" * 200, " žluť \n", "pump~", ""])
async def test_when_a_group_is_any_text_then_it_is_a_session_by_name_and_as_the_next(
    gateway: ServiceBusGateway, name: str, group: str
) -> None:
    """R40."""
    subscription = with_sessions(name)
    await make(gateway, subscription)
    await gateway.producer(name).send([a_message("A", group=group)])

    following = await accept(gateway, subscription)
    [first] = await following.receive(max_count=1, wait_s=30)
    following_id = following.id
    await following.aclose()
    named = await accept(gateway, subscription, group)
    [again] = await named.receive(max_count=1, wait_s=30)

    assert following_id == named.id == group
    assert first.message.group == again.message.group == group
    assert not await named.settle([ack(again)])


async def test_when_a_message_has_no_group_then_a_queue_with_sessions_takes_it_all_the_same(
    gateway: ServiceBusGateway, name: str
) -> None:
    """R40: Service Bus itself refuses a message without a session."""
    subscription = with_sessions(name)
    await make(gateway, subscription)
    sent = a_message("A")

    await gateway.producer(name).send([sent, a_message("B", group="b")])

    session = await accept(gateway, subscription, "")
    [received] = await session.receive(max_count=5, wait_s=30)
    assert received.message == sent


async def test_when_a_queue_has_sessions_then_an_ordinary_receive_is_refused_with_the_reason(
    gateway: ServiceBusGateway, name: str
) -> None:
    """R76."""
    subscription = with_sessions(name)
    await make(gateway, subscription)

    with pytest.raises(UnsupportedOperation, match="accept_session"):
        await gateway.consumer(subscription).receive(max_count=1, wait_s=0.0)
    with pytest.raises(UnsupportedOperation):
        await gateway.admin().peek(name)


async def test_when_a_queue_has_no_sessions_then_accepting_one_is_refused_with_the_reason(
    gateway: ServiceBusGateway, name: str
) -> None:
    """R76: and a queue never changes into one that has."""
    await make(gateway, a_subscription(name))

    with pytest.raises(UnsupportedOperation, match="sessions"):
        await gateway.accept_session(a_subscription(name), None, wait_s=0.0)
    spec = QueueSpec(name=name, options={"sessions": True})
    with pytest.raises(QueueMismatch, match="sessions"):
        await gateway.admin().ensure(spec, MakeChannels.CREATE)


async def test_when_the_link_of_a_session_is_cut_then_it_is_lost_and_its_messages_come_again(
    open_gateway: OpenGateway, servicebus: ServiceBusPeer, name: str
) -> None:
    """R41, R51: the link was the lock."""
    async with TcpProxy(servicebus.amqp_port) as proxy:
        gateway = await open_gateway(port=proxy.port)
        subscription = with_sessions(name)
        await make(gateway, subscription)
        await gateway.producer(name).send([a_message("A", group="a"), a_message("B", group="a")])
        lost = await accept(gateway, subscription, "a")
        held = await lost.receive(max_count=2, wait_s=30)

        proxy.sever()

        with pytest.raises(SessionLockLost):
            await lost.renew()
        with pytest.raises(SessionLockLost):
            await lost.settle([ack(held[0])])
        await lost.aclose()
        session = await accept(gateway, subscription, "a")
        again = await session.receive(max_count=2, wait_s=30)
        assert [each.message.body for each in again] == [b"A", b"B"]
        assert {each.attempt for each in again} == {2}


async def test_when_the_service_has_taken_a_session_back_then_it_is_lost(
    open_gateway: OpenGateway, own_servicebus: Any, name: str
) -> None:
    """R41: although our lease is not over."""
    peer = own_servicebus()
    gateway = await open_gateway(peer)
    subscription = with_sessions(name)
    await make(gateway, subscription)
    await gateway.producer(name).send([a_message("A", group="a")])
    lost = await accept(gateway, subscription)
    [held] = await lost.receive(max_count=1, wait_s=30)

    peer.expire_locks()

    try:
        errors = [refusal.error for refusal in await lost.settle([ack(held)])]
    except SessionLockLost as error:
        errors = [error]
    assert [type(error) for error in errors] == [SessionLockLost]
    session = await accept(gateway, subscription)
    assert len(await session.receive(max_count=1, wait_s=30)) == 1


async def test_when_somebody_else_has_set_a_state_then_it_is_left_alone(
    gateway: ServiceBusGateway, name: str
) -> None:
    """A rest is then known to this session only."""
    subscription = with_sessions(name)
    await make(gateway, subscription)
    await gateway.producer(name).send([a_message("A", group="a")])
    session = await accept(gateway, subscription, "a")
    await session._ask("noting", lambda link: sdk.set_state(link, b"theirs"))
    await session.aclose()

    session = await accept(gateway, subscription, "a")
    [held] = await session.receive(max_count=1, wait_s=30)
    await session.settle([defer(held, seconds=3)])
    assert await session.receive(max_count=1, wait_s=0.0) == []
    [again] = await session.receive(max_count=1, wait_s=30)
    await session.settle([ack(again)])

    states: list[bytes | None] = []

    async def read(link: Any) -> None:
        states.append(await sdk.get_state(link))

    await session._ask("reading", read)
    assert states == [b"theirs"]


async def test_when_deliveries_reach_the_limit_in_a_session_then_the_next_message_is_free(
    gateway: ServiceBusGateway, name: str
) -> None:
    """R20, T7: a dead-lettered head frees its successors."""
    subscription = with_sessions(name, dead_letter_queue=f"{name}-dead", max_receive_count=2)
    await make(gateway, subscription)
    await gateway.producer(name).send([a_message("A", group="a"), a_message("B", group="a")])
    session = await accept(gateway, subscription, "a")

    for _ in range(2):
        [held] = await session.receive(max_count=1, wait_s=30)
        assert held.message.body == b"A"
        assert not await session.settle([defer(held)])

    [following] = await session.receive(max_count=1, wait_s=30)
    assert following.message.body == b"B"
    assert not await session.settle([abandon(following)])
    dead = gateway.consumer(a_subscription(f"{name}-dead"))
    assert [each.message.body for each in await dead.receive(max_count=2, wait_s=30)] == [b"A"]


async def test_when_a_settlement_was_cancelled_and_is_asked_for_again_then_it_is_made_once(
    gateway: ServiceBusGateway, name: str
) -> None:
    """Law 1: the first goes on by itself, and the second says that nothing is left to settle."""
    subscription = with_sessions(name)
    await make(gateway, subscription)
    await gateway.producer(name).send([a_message("A", group="a"), a_message("B", group="a")])
    session = await accept(gateway, subscription, "a")
    held = await session.receive(max_count=2, wait_s=30)
    settling = asyncio.create_task(session.settle([ack(held[0]), abandon(held[1])]))
    await yield_to_loop()

    settling.cancel()
    refusals = await session.settle([ack(held[0]), abandon(held[1])])
    await session.aclose()

    assert [type(refusal.error) for refusal in refusals] == [InvalidReceipt, InvalidReceipt]
    session = await accept(gateway, subscription, "a")
    [left] = await session.receive(max_count=2, wait_s=30)
    assert left.message.body == b"B"


async def test_when_the_service_is_too_busy_to_renew_a_session_then_it_is_not_lost_yet(
    open_gateway: OpenGateway, own_servicebus: Any, name: str
) -> None:
    """R52: the lock lasts for a while."""
    peer = own_servicebus()
    gateway = await open_gateway(peer)
    subscription = with_sessions(name)
    await make(gateway, subscription)
    await gateway.producer(name).send([a_message("A", group="a")])
    session = await accept(gateway, subscription, "a")
    [held] = await session.receive(max_count=1, wait_s=30)
    peer.throttle("renew-session-lock", 5)

    await session._keep()

    assert peer.counts()["renew-session-lock"] == 5
    assert not await session.settle([ack(held)])


async def test_when_a_message_comes_while_its_session_asks_something_else_then_it_is_kept(
    open_gateway: OpenGateway, own_servicebus: Any, name: str
) -> None:
    """Handed back, it would come after those that the service has sent behind it."""
    peer = own_servicebus()
    gateway = await open_gateway(peer)
    subscription = with_sessions(name)
    await make(gateway, subscription)
    await gateway.producer(name).send([a_message("A", group="a")])
    session = await accept(gateway, subscription, "a")
    [first] = await session.receive(max_count=5, wait_s=30)
    await gateway.producer(name).send([a_message("B", group="a")])

    # The message is on its way before the answer is.
    await session.renew()

    assert peer.counts().get("disposition", 0) == 0
    [second] = await session.receive(max_count=5, wait_s=30)
    assert (second.message.body, second.attempt) == (b"B", 1)
    assert not await session.settle([ack(first), ack(second)])


async def test_when_messages_come_while_others_are_settled_then_the_order_of_a_session_stays(
    gateway: ServiceBusGateway, name: str
) -> None:
    subscription = with_sessions(name)
    await make(gateway, subscription)
    producer = gateway.producer(name)
    bodies = [f"{number}".encode() for number in range(100)]

    async def send_all() -> None:
        for body in bodies:
            await producer.send([a_message(body, group="a")])

    session = await accept(gateway, subscription, "a")
    sending = asyncio.create_task(send_all())
    seen: list[bytes] = []
    while len(seen) < len(bodies):
        for delivery in await session.receive(max_count=50, wait_s=30):
            seen.append(delivery.message.body)
            assert not await session.settle([ack(delivery)])

    await sending
    assert seen == bodies


async def test_when_a_message_was_kept_and_its_session_is_closed_then_it_comes_again(
    gateway: ServiceBusGateway, name: str
) -> None:
    """Uncounted: nobody has seen it."""
    subscription = with_sessions(name)
    await make(gateway, subscription)
    await gateway.producer(name).send([a_message("A", group="a")])
    session = await accept(gateway, subscription, "a")
    [first] = await session.receive(max_count=5, wait_s=30)
    await gateway.producer(name).send([a_message("B", group="a")])
    await session.settle([ack(first)])

    await session.aclose()

    session = await accept(gateway, subscription, "a")
    [second] = await session.receive(max_count=5, wait_s=30)
    assert (second.message.body, second.attempt) == (b"B", 1)


async def test_when_a_deferral_is_a_heads_last_then_its_successors_do_not_wait_for_its_delay(
    gateway: ServiceBusGateway, name: str
) -> None:
    """It is in the dead-letter queue."""
    subscription = with_sessions(name, dead_letter_queue=f"{name}-dead", max_receive_count=2)
    await make(gateway, subscription)
    await gateway.producer(name).send([a_message("A", group="a"), a_message("B", group="a")])
    session = await accept(gateway, subscription, "a")
    [first] = await session.receive(max_count=1, wait_s=30)
    assert not await session.settle([defer(first)])
    [head] = await session.receive(max_count=1, wait_s=30)
    [successor] = await session.receive(max_count=1, wait_s=30)

    assert not await session.settle([defer(head, seconds=60), abandon(successor)])

    [following] = await session.receive(max_count=1, wait_s=30)
    assert (head.attempt, following.message.body) == (2, b"B")


@pytest.mark.parametrize("lease_s", [10, 25], ids=["a shorter lease", "a longer lease"])
async def test_when_a_session_has_rested_while_somebody_waited_then_it_is_given_with_a_lease(
    gateway: ServiceBusGateway, name: str, lease_s: int
) -> None:
    """Whether or not the rest outlasts the lease with which it was held meanwhile."""
    subscription = with_sessions(name, lease=timedelta(seconds=lease_s))
    await make(gateway, subscription)
    await gateway.producer(name).send([a_message("A", group="a")])
    session = await accept(gateway, subscription, "a")
    [held] = await session.receive(max_count=1, wait_s=30)
    assert not await session.settle([defer(held, seconds=15)])
    await session.aclose()

    port = await gateway.accept_session(subscription, None, wait_s=30)

    assert port is not None
    assert port.lock_expires_at_s is not None
    assert port.lock_expires_at_s - SYSTEM_CLOCK.now_s() > 0.5 * lease_s
    [again] = await port.receive(max_count=1, wait_s=30)
    assert (again.message.body, again.attempt) == (b"A", 2)
    assert not await port.settle([ack(again)])


async def test_when_a_head_is_deferred_to_its_end_then_its_successors_are_not_dead_lettered_too(
    gateway: ServiceBusGateway, name: str
) -> None:
    """Although the service counts what is handed back with it."""
    subscription = with_sessions(name, dead_letter_queue=f"{name}-dead", max_receive_count=2)
    await make(gateway, subscription)
    await gateway.producer(name).send([a_message(body, group="a") for body in "ABC"])
    session = await accept(gateway, subscription, "a")

    for _ in range(2):
        head, *successors = await session.receive(max_count=10, wait_s=30)
        assert head.message.body == b"A"
        assert not await session.settle([defer(head), *map(abandon, successors)])

    for body in (b"B", b"C"):
        [following] = await session.receive(max_count=10, wait_s=30)
        assert (following.message.body, following.attempt) == (body, 1)
        assert not await session.settle([ack(following)])
