"""A broker that is killed, as by a power cut, and started again on the same data; and one that is
short of memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from typing import Any

import pytest

from gateways.rabbitmq import RabbitMQGateway, RabbitMQSettings
from gateways.rabbitmq.session_index import SessionIndex
from gateways.rabbitmq.topology import Topology
from pump.clock import SYSTEM_CLOCK
from pump.errors import GatewayError, Throttled
from pump.message import Message
from pump.ports import SessionPort
from pump.subscription import Subscription
from pump.testing.builders import a_message, a_subscription, defer
from tests.brokers.rabbitmq_server import RabbitMQ
from tests.gateways.work import a_job_subscription, make, receive_surely, send_surely, work_off

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
    session = await gateway.accept_session(queue, "a", wait_s=30)
    assert session is not None
    [first, *_] = await session.receive(max_count=2, wait_s=30)

    await asyncio.to_thread(server.kill)
    await asyncio.to_thread(server.start)

    assert first.message.body == b"a1"
    assert await bodies_of(gateway, queue, "a", 4) == [b"a1", b"a2", b"a3", b"a4"]
    await send_surely(gateway, "orders", a_message("b2", group="b"))
    assert await bodies_of(gateway, queue, "b", 2) == [b"b1", b"b2"]


@pytest.mark.slow
async def test_when_the_broker_is_killed_right_after_a_confirm_then_new_queues_keep_their_messages(
    server: RabbitMQ, gateway: RabbitMQGateway
) -> None:
    """T3, law 2: after the first post to a new queue, the first delayed post, the first deferral
    and the first message of a session, each once as the last thing before the kill.
    """
    for number in range(4):
        await _kill_after_the_first_of_each(server, gateway, number)


async def _kill_after_the_first_of_each(
    server: RabbitMQ, gateway: RabbitMQGateway, number: int
) -> None:
    queue, sessions = a_subscription(f"new-{number}"), _with_sessions(f"sorted-{number}")
    other = a_subscription(f"other-{number}")
    await make(gateway, sessions)
    await make(gateway, queue)
    producer, consumer = gateway.producer(queue.queue), gateway.consumer(queue)
    await producer.send([a_message("deferred")])
    [received] = await consumer.receive(max_count=1, wait_s=30)

    async def defer_it() -> None:
        assert not await consumer.settle([defer(received, seconds=6)])

    async def delay() -> None:
        await producer.send([a_message("delayed")], delay_s=3)

    async def post() -> None:
        await make(gateway, other)
        await gateway.producer(other.queue).send([a_message("posted")])

    async def sort_in() -> None:
        await gateway.producer(sessions.queue).send([a_message("sorted", group="a")])
        assert await gateway.accept_session(sessions, "a", wait_s=30)

    steps = [defer_it, delay, post, sort_in]
    for step in steps[number:] + steps[:number]:
        await step()
    await asyncio.to_thread(server.kill)
    await asyncio.to_thread(server.start)

    assert await _received(gateway, queue, 2) == {b"delayed", b"deferred"}
    assert await _received(gateway, other, 1) == {b"posted"}
    assert await bodies_of(gateway, sessions, "a", 1) == [b"sorted"]


@pytest.mark.slow
@pytest.mark.parametrize("made", ["a session's queue", "the queue of notes"])
async def test_when_the_broker_is_killed_over_a_new_queue_then_sorting_goes_on_without_it(
    server: RabbitMQ, gateway: RabbitMQGateway, monkeypatch: pytest.MonkeyPatch, made: str
) -> None:
    """R40, R51: it comes back without a leader, and would never confirm what is sorted into it."""
    sessions = _with_sessions("sorted")
    await make(gateway, sessions)
    await gateway.producer(sessions.queue).send([a_message("a1", group="a")])
    if made == "a session's queue":
        _kill_after(SessionIndex, "make", server, monkeypatch)
    else:
        _kill_after(SessionIndex, "_declare", server, monkeypatch)

    session = await _accepted(gateway, sessions)
    [received] = await session.receive(max_count=1, wait_s=30)

    assert (session.id, received.message.body) == ("a", b"a1")


@pytest.mark.slow
async def test_when_the_broker_is_killed_over_a_new_delay_then_that_delay_can_be_used_again(
    server: RabbitMQ, gateway: RabbitMQGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R17, R51: its queue comes back without a leader, and would never confirm a deferral."""
    queue = a_subscription("orders")
    await make(gateway, queue)
    _kill_after(Topology, "_use", server, monkeypatch)

    await send_surely(gateway, queue.queue, a_message("delayed"), delay_s=2)

    assert await _received(gateway, queue, 1) == {b"delayed"}


def _kill_after(owner: type, name: str, server: RabbitMQ, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kill the broker as soon as this was called once, and start it again."""
    call = getattr(owner, name)
    killed: list[bool] = []

    async def then_kill(*positional: Any, **named: Any) -> Any:
        result = await call(*positional, **named)
        if not killed:
            killed.append(True)
            await asyncio.to_thread(server.kill)
            await asyncio.to_thread(server.start)
        return result

    monkeypatch.setattr(owner, name, then_kill)


async def test_when_the_broker_is_short_of_memory_then_every_send_is_answered_and_closing_ends(
    server: RabbitMQ,
) -> None:
    """R51: the broker reads nothing more from a connection that publishes, not even that a channel
    is to be opened or closed.
    """
    gateway = RabbitMQGateway(RabbitMQSettings.from_url(f"{server.url()}?confirm_timeout=1"))
    await gateway.open()
    await make(gateway, a_subscription("orders"))
    await asyncio.to_thread(server.be_short_of_memory)

    async with asyncio.timeout(60):
        for delay_s in (0, 0, 2):
            with pytest.raises(Throttled):
                await gateway.producer("orders").send([a_message()], delay_s=delay_s)
        with pytest.raises(Throttled):
            await gateway.producer("others").send([a_message()])
        await gateway.aclose()


async def test_when_the_broker_reads_nothing_of_a_large_send_then_closing_ends(
    server: RabbitMQ,
) -> None:
    """R51: what is left in the socket's buffer goes with the connection."""
    gateway = RabbitMQGateway(RabbitMQSettings.from_url(f"{server.url()}?confirm_timeout=1"))
    await gateway.open()
    await make(gateway, a_subscription("orders"))
    await asyncio.to_thread(server.be_short_of_memory)
    large = b"x" * 1_000_000

    with pytest.raises(Throttled):
        await gateway.producer("orders").send([a_message()])
    with pytest.raises(Throttled):
        await gateway.producer("orders").send([Message(body=large) for _ in range(40)])

    async with asyncio.timeout(40):
        await gateway.aclose()


async def test_when_the_broker_stands_still_then_closing_does_not_wait_for_its_heartbeats(
    server: RabbitMQ,
) -> None:
    """R51: with a session, with what is in flight, and with a receive that was just cancelled."""
    url = f"{server.url()}?heartbeat=600&confirm_timeout=1&connect_timeout=3"
    gateway = RabbitMQGateway(RabbitMQSettings.from_url(url))
    await gateway.open()
    queue, sessions = a_subscription("orders"), _with_sessions("sorted")
    for each in (queue, sessions):
        await make(gateway, each)
        await gateway.producer(each.queue).send([a_message("1", group="a")])
    session = await gateway.accept_session(sessions, "a", wait_s=30)
    assert session is not None
    assert await session.receive(max_count=1, wait_s=30)
    consumer = gateway.consumer(queue)
    assert await consumer.receive(max_count=1, wait_s=30)
    waiting = asyncio.create_task(consumer.receive(max_count=1, wait_s=600))
    await SYSTEM_CLOCK.sleep(0.1)

    with server.standing_still():
        waiting.cancel()
        async with asyncio.timeout(60):
            await gateway.aclose()

    assert waiting.cancelled()


def _with_sessions(queue: str) -> Subscription:
    return a_subscription(queue, lease=timedelta(seconds=30), options={"sessions": True})


async def _accepted(gateway: RabbitMQGateway, sessions: Subscription) -> SessionPort:
    """The next session that has messages, once the broker is back."""
    for _ in range(100):
        try:
            if (session := await gateway.accept_session(sessions, None, wait_s=5)) is not None:
                return session
        except GatewayError:
            await SYSTEM_CLOCK.sleep(0.1)
    raise AssertionError("never accepted")


async def _received(gateway: RabbitMQGateway, queue: Subscription, count: int) -> set[bytes]:
    bodies: set[bytes] = set()
    while len(bodies) < count:
        bodies |= {each.message.body for each in await receive_surely(gateway, queue)}
    return bodies


async def bodies_of(
    gateway: RabbitMQGateway, subscription: Subscription, group: str, count: int
) -> list[bytes]:
    """What a session has, accepted as often as it takes."""
    bodies: list[bytes] = []
    for _ in range(100):
        try:
            session = await gateway.accept_session(subscription, group, wait_s=30)
            if session is None:
                continue
            while len(bodies) < count:
                received = await session.receive(max_count=1, wait_s=30)
                bodies += [each.message.body for each in received]
            await session.aclose()
            return bodies
        except GatewayError:
            bodies.clear()
    raise AssertionError("never received")
