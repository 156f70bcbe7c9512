"""Sessions on a real server: exclusive, in order, renewed, fenced (R40, R41)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest

from gateways.nats.gateway import NatsGateway
from gateways.nats.session import NatsSession
from pump.clock import SYSTEM_CLOCK
from pump.errors import SessionLocked, SessionLockLost, UnsupportedOperation
from pump.outcome import ACK, Defer, Settlement
from pump.ports import SessionPort
from pump.testing.builders import a_message
from tests.brokers.nats_server import NatsServer

from .bench import LEASE, PATIENTLY, Bench, ids

pytestmark = pytest.mark.broker

SESSIONS = {"sessions": True}
SHORT_LEASE = timedelta(seconds=8)
SOON = timedelta(seconds=0.3)


@pytest.fixture
async def bench(nats: NatsServer) -> Bench:
    bench = Bench(nats.url)
    async with bench.client(options=SESSIONS):
        return bench


@pytest.fixture
async def gateway(bench: Bench) -> AsyncIterator[NatsGateway]:
    async with bench.gateway() as gateway:
        yield gateway


async def accept(
    gateway: NatsGateway, bench: Bench, session: str | None, **fields: Any
) -> SessionPort:
    subscription = bench.subscription(options=SESSIONS, **fields)
    port = await gateway.accept_session(subscription, session, wait_s=30)
    assert port is not None
    return port


async def test_when_a_session_is_accepted_then_it_gives_its_group_in_order(bench: Bench) -> None:
    """R40, R38: and nothing of other groups."""
    await bench.send("a", "a1", "a2", "a3")
    await bench.send("b", "b1")
    async with (
        bench.client(options=SESSIONS) as consumer,
        await consumer.accept_session("a") as session,
    ):
        received = await session.receive(10)
        for each in received:
            await session.ack(each)
        rest = await session.receive(10, wait=SOON)

    assert ids(received) == ["a1", "a2", "a3"]
    assert list(rest) == []


async def test_when_a_session_is_held_then_another_accept_fails(bench: Bench) -> None:
    """R40: also where it has no messages."""
    async with (
        bench.client(options=SESSIONS) as one,
        bench.client(options=SESSIONS) as other,
        await one.accept_session("a"),
    ):
        with pytest.raises(SessionLocked):
            await other.accept_session("a", wait=SOON)
        with pytest.raises(SessionLocked):
            await one.accept_session("a", wait=SOON)


async def test_when_a_session_is_released_then_who_waits_has_it_at_once(bench: Bench) -> None:
    """R40: what was not settled is handed back in order, and not counted."""
    await bench.send("a", "a1", "a2")
    async with bench.client(options=SESSIONS) as one, bench.client(options=SESSIONS) as other:
        first = await one.accept_session("a")
        assert len(await first.receive(2)) == 2
        waiting = asyncio.create_task(other.accept_session("a", wait=PATIENTLY))

        await first.aclose()

        async with await waiting as second:
            received = await second.receive(2)
            assert [(each.message.id, each.attempt) for each in received] == [("a1", 1), ("a2", 1)]


async def test_when_a_session_is_active_then_its_lock_outlasts_its_lease(bench: Bench) -> None:
    """R40: it is renewed."""
    await bench.send("a", "a1")
    fields: dict[str, Any] = {"options": SESSIONS, "lease": SHORT_LEASE}
    async with (
        bench.client(**fields) as one,
        bench.client(**fields) as other,
        await one.accept_session("a") as session,
    ):
        [held] = await session.receive()
        with pytest.raises(SessionLocked):
            await other.accept_session("a", wait=1.5 * SHORT_LEASE)
        await session.ack(held)


async def test_when_a_lock_is_not_renewed_then_it_expires_and_the_first_is_told(
    bench: Bench,
) -> None:
    """R41: another client gets it; the first gets `SessionLockLost` at its next call."""
    await bench.send("a", "a1")
    fields: dict[str, Any] = {"options": SESSIONS, "lease": SHORT_LEASE, "renew": False}
    async with bench.client(**fields) as one, bench.client(**fields) as other:
        first = await one.accept_session("a")
        [held] = await first.receive()

        async with await other.accept_session("a", wait=PATIENTLY) as second:
            [again] = await second.receive()
            with pytest.raises(SessionLockLost):
                await first.ack(held)
            with pytest.raises(SessionLockLost):
                await first.receive()
            await second.ack(again)

        assert (again.message.id, again.attempt) == ("a1", 2)
        await first.aclose()


async def test_when_the_lock_was_taken_over_then_the_server_itself_refuses_the_old_acks(
    bench: Bench, gateway: NatsGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R41: fencing does not rest on the first client's clock."""
    await bench.send("a", "a1")
    first = await accept(gateway, bench, "a", lease=SHORT_LEASE)
    [held] = await first.receive(max_count=1, wait_s=30)
    async with bench.gateway() as other:
        second = await accept(other, bench, "a", lease=SHORT_LEASE)
        # Its clock stands still: it believes that its lock lasts for ever.
        assert isinstance(first, NatsSession)
        monkeypatch.setattr(first._state.lease, "ends_at_s", float("inf"))

        [refusal] = await first.settle([Settlement(held, ACK)])

        assert isinstance(refusal.error, SessionLockLost)
        [again] = await second.receive(max_count=1, wait_s=30)
        assert again.message.id == "a1"
        assert not await second.settle([Settlement(again, ACK)])
        with pytest.raises(SessionLockLost):
            await first.renew()
        await second.aclose()


async def test_when_no_session_is_named_then_the_next_free_one_with_messages_is_accepted(
    bench: Bench,
) -> None:
    """R40."""
    await bench.send("a", "a1")
    await bench.send("ä . * > b", "b1")
    async with bench.client(options=SESSIONS) as consumer:
        seen: dict[str, list[str]] = {}
        opened = []
        while session := await consumer.accept_session(wait=SOON):
            opened.append(session)
            seen[session.id] = ids(await session.receive(5))

        assert seen == {"a": ["a1"], "ä . * > b": ["b1"]}
        for session in opened:
            await session.aclose()


async def test_when_a_message_comes_then_who_waits_for_the_next_session_has_it(
    bench: Bench,
) -> None:
    """R40: also of a group whose name is too long for a subject."""
    group = "long " * 100
    async with bench.client(options=SESSIONS) as consumer:
        waiting = asyncio.create_task(consumer.accept_session(wait=PATIENTLY))
        await bench.send(group, "a1")

        session = await waiting

        assert session is not None
        assert session.id == group
        assert ids(await session.receive()) == ["a1"]
        await session.aclose()


async def test_when_the_first_is_deferred_then_its_successors_stay_behind_it(
    bench: Bench,
) -> None:
    """R40: those that were received, and those that were not."""
    await bench.send("a", "a1", "a2", "a3")
    async with (
        bench.client(options=SESSIONS) as consumer,
        await consumer.accept_session("a") as session,
    ):
        first, _ = await session.receive(2)
        await session.defer(first, timedelta(seconds=2))

        early = await session.receive(5, wait=timedelta(0))
        again = [*await session.receive(5), *await session.receive(5)]

    assert list(early) == []
    attempts = [(each.message.id, each.attempt) for each in again]
    assert attempts == [("a1", 2), ("a2", 1), ("a3", 1)]


async def test_when_a_deferred_session_is_closed_then_it_rests_until_it_is_due(
    bench: Bench,
) -> None:
    """R40: it is not the next one before."""
    await bench.send("a", "a1")
    async with bench.client(options=SESSIONS) as consumer:
        async with await consumer.accept_session("a") as session:
            [held] = await session.receive()
            await session.defer(held, timedelta(seconds=3))

        assert await consumer.accept_session(wait=SOON) is None
        session_again = await consumer.accept_session(wait=PATIENTLY)
        assert session_again is not None
        [again] = await session_again.receive()
        assert (again.message.id, again.attempt) == ("a1", 2)
        await session_again.aclose()


async def test_when_a_message_fails_too_often_in_sessions_then_it_is_a_dead_letter(
    bench: Bench,
) -> None:
    """R20, T5: the count outlives sessions."""
    dead = f"{bench.queue}.dead"
    await bench.send("a", "a1", "a2")
    fields: dict[str, Any] = {"dead_letter_queue": dead, "max_receive_count": 2}
    attempts = []
    async with bench.gateway() as gateway:
        await bench.make(gateway, queue=dead)
        for _ in range(2):
            session = await accept(gateway, bench, "a", **fields)
            [head] = await session.receive(max_count=1, wait_s=30)
            attempts.append((head.message.id, head.attempt))
            await session.settle([Settlement(head, Defer(0.0))])
            await session.aclose()
        session = await accept(gateway, bench, "a", **fields)
        [successor] = await session.receive(max_count=5, wait_s=30)
        await session.aclose()

        letters = await gateway.admin().peek(dead)

    assert attempts == [("a1", 1), ("a1", 2)]
    assert successor.message.id == "a2"
    assert [each.id for each in letters] == ["a1"]


async def test_when_an_accept_is_cancelled_then_nothing_stays_locked(
    bench: Bench, gateway: NatsGateway
) -> None:
    """R40; law 6: wherever the cancellation falls."""
    subscription = bench.subscription(options=SESSIONS)
    for turns in range(0, 40, 3):
        accepting = asyncio.create_task(gateway.accept_session(subscription, "a", wait_s=30))
        for _ in range(turns):
            await SYSTEM_CLOCK.sleep(0.0)
        accepting.cancel()
        try:
            port = await accepting
        except asyncio.CancelledError:
            port = None
        if port is not None:
            await port.aclose()
        async with bench.gateway() as other:
            mine = await other.accept_session(subscription, "a", wait_s=30)
            assert mine is not None
            await mine.aclose()


async def test_when_a_receive_is_cancelled_then_the_session_keeps_its_order(
    bench: Bench, gateway: NatsGateway
) -> None:
    """R40, R4."""
    await bench.send("a", "a1", "a2", "a3")
    session = await accept(gateway, bench, "a")
    for turns in range(12):
        receiving = asyncio.create_task(session.receive(max_count=2, wait_s=30))
        for _ in range(turns):
            await SYSTEM_CLOCK.sleep(0.0)
        receiving.cancel()
        await asyncio.gather(receiving, return_exceptions=True)
        if not receiving.cancelled():
            await session.settle([Settlement(each, Defer(0.0)) for each in receiving.result()])
    received = [
        *await session.receive(max_count=3, wait_s=30),
        *await session.receive(max_count=3, wait_s=0.3),
    ]
    await session.aclose()

    assert ids(received) == ["a1", "a2", "a3"]


async def test_when_a_session_is_asked_twice_at_once_then_no_message_is_given_twice(
    bench: Bench, gateway: NatsGateway
) -> None:
    """R38."""
    await bench.send("a", "a1", "a2", "a3", "a4")
    session = await accept(gateway, bench, "a")
    held = await session.receive(max_count=4, wait_s=30)
    await session.settle([Settlement(each, Defer(0.0)) for each in held])

    received = await asyncio.gather(*(session.receive(max_count=2, wait_s=30) for _ in range(2)))
    await session.aclose()

    assert sorted(ids([*received[0], *received[1]])) == ["a1", "a2", "a3", "a4"]


async def test_when_one_delivery_is_settled_twice_at_once_then_the_second_is_refused(
    bench: Bench, gateway: NatsGateway
) -> None:
    """Law 1: it must not come again after its ack."""
    await bench.send("a", "a1", "a2")
    session = await accept(gateway, bench, "a")
    [first] = await session.receive(max_count=1, wait_s=30)

    answers = await asyncio.gather(
        session.settle([Settlement(first, ACK), Settlement(first, ACK)]),
        session.settle([Settlement(first, Defer(0.0))]),
    )

    assert [[each.is_final for each in refusals] for refusals in answers] == [[True], [True]]
    assert ids(await session.receive(max_count=2, wait_s=30)) == ["a2"]
    await session.aclose()


async def test_when_the_record_of_a_lock_is_gone_then_its_consumer_is_in_nobodys_way(
    bench: Bench, gateway: NatsGateway
) -> None:
    """R41: records are forgotten after a week; the one who had it then finds the lock lost."""
    await bench.send("a", "a1")
    first = await accept(gateway, bench, "a")
    [held] = await first.receive(max_count=1, wait_s=30)
    subject = f"$KV.pumphouse-sessions.{bench.queue}.a"
    await gateway._api.ask("STREAM.PURGE.KV_pumphouse-sessions", {"filter": subject})

    second = await accept(gateway, bench, "a")
    [again] = await second.receive(max_count=1, wait_s=30)

    [refusal] = await first.settle([Settlement(held, ACK)])
    assert isinstance(refusal.error, SessionLockLost)
    assert not await second.settle([Settlement(again, ACK)])
    await second.aclose()


async def test_when_there_are_many_groups_then_each_of_many_workers_finds_one(
    bench: Bench, gateway: NatsGateway
) -> None:
    """R40: more of them than are looked at in one go, all held but a few."""
    subscription = bench.subscription(options=SESSIONS)
    groups = {f"g{number}" for number in range(80)}
    messages = [a_message(group=group) for group in groups]
    await gateway.producer(bench.queue).send(messages)

    accepted = [
        await gateway.accept_session(subscription, None, wait_s=30) for _ in range(len(groups))
    ]

    assert {each.id for each in accepted if each is not None} == groups
    assert await gateway.accept_session(subscription, None, wait_s=0.0) is None


async def test_when_a_queue_has_no_sessions_then_accepting_says_what_to_do(
    nats: NatsServer,
) -> None:
    """R76."""
    bench = Bench(nats.url)
    async with bench.client(lease=LEASE) as consumer:
        with pytest.raises(UnsupportedOperation, match="options="):
            await consumer.accept_session("a", wait=SOON)


async def test_when_a_queue_has_sessions_then_messages_without_a_group_are_received_as_ever(
    bench: Bench,
) -> None:
    """R55, R76."""
    await bench.send(None, "free")
    await bench.send("a", "a1")
    async with bench.client(options=SESSIONS) as consumer:
        [received] = await consumer.receive(5)
        await consumer.ack(received)
        with pytest.raises(UnsupportedOperation):
            await consumer.accept_session("", wait=SOON)

    assert received.message.id == "free"
