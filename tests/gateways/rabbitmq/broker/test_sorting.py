"""Sorting into sessions where notes are lost, sorters die and queues come and go: R38, R40."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import aiormq
import pytest

from gateways.rabbitmq import RabbitMQGateway, RabbitMQSettings, sorter
from gateways.rabbitmq.names import beside, session_queue
from gateways.rabbitmq.session_index import SessionIndex
from pump.clock import SYSTEM_CLOCK
from pump.testing.builders import ack
from tests.brokers.tcp_proxy import TcpProxy
from tests.gateways.work import make

from .conftest import OpenGateway
from .places import via
from .session_steps import hold, send, take, until_gone, with_sessions

pytestmark = pytest.mark.broker


async def test_when_the_sorter_dies_then_another_one_goes_on_sorting(
    open_gateway: OpenGateway, rabbitmq_url: str, name: str
) -> None:
    """R38: nothing is lost, and the order within a group stays."""
    subscription = with_sessions(name)
    other = await open_gateway()
    await make(other, subscription)
    async with TcpProxy(RabbitMQSettings.from_url(rabbitmq_url).port) as proxy:
        gateway = await open_gateway(via(rabbitmq_url, proxy.port))
        await send(other, name, "a1")
        # The first to accept sorts; the second stands by.
        assert await take(await hold(gateway, subscription, "a"), 1) == "a1"
        session = await hold(other, subscription, "b")
        proxy.shut()

        await send(other, name, "b1 a2 b2")

        assert await take(session, 2) == "b1b2"
        assert await take(await hold(other, subscription, "a"), 1) == "a2"


async def test_when_the_sorter_is_closed_in_the_middle_then_nothing_is_there_twice(
    open_gateway: OpenGateway, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Law 5: what it has put into sessions it acks, before it goes."""
    subscription = with_sessions(name)
    gateway, other = await open_gateway(), await open_gateway()
    await make(gateway, subscription)
    await (await hold(gateway, subscription, "b")).aclose()
    is_between = asyncio.Event()
    announce = SessionIndex.announce

    async def announce_slowly(index: SessionIndex, groups: Iterable[str], **fields: float) -> None:
        is_between.set()
        await SYSTEM_CLOCK.sleep(0.2)
        await announce(index, groups, **fields)

    monkeypatch.setattr(SessionIndex, "announce", announce_slowly)
    await send(other, name, "a1")
    await asyncio.wait_for(is_between.wait(), 30)
    await gateway.aclose()

    session = await hold(other, subscription, "a")
    assert await take(session, 1) == "a1"
    assert not await session.receive(max_count=1, wait_s=1.0)


async def test_when_a_note_is_lost_then_the_session_is_found_all_the_same(
    gateway: RabbitMQGateway, rabbitmq_url: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R40: by the sorter, which looks around now and then."""
    monkeypatch.setattr(sorter, "SWEEP_S", 0.3)
    subscription = with_sessions(name)
    await make(gateway, subscription)
    await send(gateway, name, "a1")
    # Accepting by name sorts, and leaves the note where it is.
    await (await hold(gateway, subscription, "b")).aclose()
    connection = await aiormq.connect(rabbitmq_url)
    channel = await connection.channel()
    await channel.queue_purge(beside(name, "ready"))
    await connection.close()

    session = await hold(gateway, subscription, None)

    assert session.id == "a"
    assert await take(session, 1) == "a1"


async def test_when_a_session_has_been_empty_for_a_while_then_its_queue_is_removed(
    gateway: RabbitMQGateway, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Groups come and go; what they had at the broker must not stay."""
    monkeypatch.setattr(sorter, "SWEEP_S", 0.2)
    subscription = with_sessions(name)
    await make(gateway, subscription)
    await send(gateway, name, "a1")
    session = await hold(gateway, subscription, "a")
    assert await take(session, 1) == "a1"

    await session.aclose()

    await until_gone(gateway, session_queue(name, "a"))
    # It is made again for the next message.
    await send(gateway, name, "a2")
    assert await take(await hold(gateway, subscription, None), 1) == "a2"


async def test_when_a_dead_owners_messages_are_not_back_yet_then_the_queue_is_not_removed(
    gateway: RabbitMQGateway, rabbitmq_url: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R41: the lock may be free while the queue still looks empty, and nothing may be lost."""
    monkeypatch.setattr(sorter, "SWEEP_S", 1.0)
    subscription = with_sessions(name)
    await make(gateway, subscription)
    await send(gateway, name, "a1")
    connection = await aiormq.connect(rabbitmq_url)
    dead = await connection.channel()
    is_back = asyncio.Event()
    count = SessionIndex.count

    async def count_before_it_is_back(index: SessionIndex, group: str) -> int | None:
        found = await count(index, group)
        if group == "a" and found == 0 and not is_back.is_set():
            await dead.close()
            is_back.set()
        return found

    session = await hold(gateway, subscription, "b")
    monkeypatch.setattr(SessionIndex, "count", count_before_it_is_back)
    assert (await dead.basic_get(session_queue(name, "a"))).body == b"a1"

    # The sorter has looked once when it is.
    await is_back.wait()
    assert await take(await hold(gateway, subscription, "a"), 1) == "a1"
    await session.aclose()
    await connection.close()


async def test_when_a_queue_is_said_to_be_empty_and_is_not_then_it_is_not_removed(
    gateway: RabbitMQGateway, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R41: RabbitMQ counts nothing in a queue that has no leader at the moment."""
    monkeypatch.setattr(sorter, "SWEEP_S", 0.2)
    subscription = with_sessions(name)
    await make(gateway, subscription)
    await send(gateway, name, "a1")
    count, looks = SessionIndex.count, 0
    has_looked = asyncio.Event()

    async def count_nothing(index: SessionIndex, group: str) -> int | None:
        nonlocal looks
        if group != "a" or await count(index, group) is None:
            return await count(index, group)
        looks += 1
        if looks == 4:
            has_looked.set()
        return 0

    monkeypatch.setattr(SessionIndex, "count", count_nothing)
    session = await hold(gateway, subscription, "b")
    async with asyncio.timeout(30):
        await has_looked.wait()
    monkeypatch.setattr(SessionIndex, "count", count)

    assert await take(await hold(gateway, subscription, "a"), 1) == "a1"
    await session.aclose()


async def test_when_the_sorters_lock_is_lost_over_an_empty_queue_then_the_queue_is_not_removed(
    gateway: RabbitMQGateway, rabbitmq_url: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R41: from then on another sorter may have put something into it."""
    monkeypatch.setattr(sorter, "SWEEP_S", 0.3)
    subscription = with_sessions(name)
    await make(gateway, subscription)
    connection = await aiormq.connect(rabbitmq_url)
    other = await connection.channel()
    is_lost = asyncio.Event()
    count, looks = SessionIndex.count, 0

    async def count_and_lose(index: SessionIndex, group: str) -> int | None:
        nonlocal looks
        found = await count(index, group)
        looks += group == "a" and found == 0
        if looks == 2 and not is_lost.is_set():
            # As if this process had stood still for so long that the broker gave it up.
            await gateway._sorting.aclose()
            gateway._sorting.allow()
            await other.basic_publish(b"a1", routing_key=session_queue(name, "a"))
            is_lost.set()
        return found

    # Before there is a session: two looks after its end its queue would be gone.
    monkeypatch.setattr(SessionIndex, "count", count_and_lose)
    await (await hold(gateway, subscription, "a")).aclose()
    await asyncio.wait_for(is_lost.wait(), 30)

    assert await take(await hold(gateway, subscription, "a"), 1) == "a1"
    await connection.close()


async def test_when_a_sessions_queue_was_removed_by_a_person_then_it_is_made_again(
    gateway: RabbitMQGateway, rabbitmq_url: str, name: str
) -> None:
    """Nothing that is sent from then on is lost."""
    subscription = with_sessions(name)
    await make(gateway, subscription)
    await (await hold(gateway, subscription, "a")).aclose()
    connection = await aiormq.connect(rabbitmq_url)
    await (await connection.channel()).queue_delete(session_queue(name, "a"))
    await connection.close()

    await send(gateway, name, "a1 b1 a2")

    assert await take(await hold(gateway, subscription, "a"), 2) == "a1a2"
    assert await take(await hold(gateway, subscription, "b"), 1) == "b1"


async def test_when_the_queue_was_removed_and_made_again_then_its_messages_are_sorted(
    gateway: RabbitMQGateway, rabbitmq_url: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sorter has the lock, so nobody else would."""
    monkeypatch.setattr(sorter, "SWEEP_S", 0.2)
    subscription = with_sessions(name)
    await make(gateway, subscription)
    await (await hold(gateway, subscription, "b")).aclose()
    connection = await aiormq.connect(rabbitmq_url)
    await (await connection.channel()).queue_delete(name)
    await connection.close()

    # A queue that is made again within milliseconds confuses RabbitMQ 3.10 itself.
    while gateway._sessions[name]._sorter._inbox is not None:
        await SYSTEM_CLOCK.sleep(0.02)
    await make(gateway, subscription)
    await send(gateway, name, "a1")

    assert await take(await hold(gateway, subscription, "a"), 1) == "a1"


async def test_when_a_session_is_held_and_empty_then_its_queue_stays(
    gateway: RabbitMQGateway, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R40: whoever holds it is still to be given what comes."""
    monkeypatch.setattr(sorter, "SWEEP_S", 0.05)
    subscription = with_sessions(name)
    await make(gateway, subscription)
    held = await hold(gateway, subscription, "a")
    await (await hold(gateway, subscription, "b")).aclose()

    await until_gone(gateway, session_queue(name, "b"))
    await send(gateway, name, "a1")

    assert await take(held, 1) == "a1"


async def test_when_more_groups_come_than_may_have_queues_then_the_rest_waits_its_turn(
    gateway: RabbitMQGateway, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is lost, and no broker is flooded with queues."""
    monkeypatch.setattr(sorter, "SWEEP_S", 0.1)
    monkeypatch.setattr(sorter, "STAND_BY_S", 0.1)
    monkeypatch.setattr(sorter, "CATCH_UP_S", 0.2)
    monkeypatch.setattr(sorter, "MAX_SESSIONS", 2)
    subscription = with_sessions(name)
    await make(gateway, subscription)
    await send(gateway, name, "a1 b1 c1 d1 e1 a2")

    seen: dict[str, str] = {}
    while sum(map(len, seen.values())) < 12:
        session = await hold(gateway, subscription, None)
        while received := await session.receive(max_count=5, wait_s=0.1):
            for delivery in received:
                body = delivery.message.body.decode()
                seen[session.id] = seen.get(session.id, "") + body
                assert not await session.settle([ack(delivery)])
        await session.aclose()

    assert seen == {"a": "a1a2", "b": "b1", "c": "c1", "d": "d1", "e": "e1"}
