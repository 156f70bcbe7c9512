"""Sessions between processes: who holds one, who dies, and who takes over."""

from __future__ import annotations

import asyncio

import pytest

from gateways._sqlite.database import Statement
from gateways.local import LocalGateway, codec, wire
from gateways.local.journal import SqliteJournal
from pump.clock import SYSTEM_CLOCK
from pump.errors import SessionLockLost
from pump.message import Message
from pump.ports import SessionPort
from pump.testing import VirtualClock
from pump.testing.builders import ack

from .conftest import OpenLocal, StartChild
from .queue_user import LEASE_S, QueueUser
from .test_local_requests import OWNER, Hosting, host

__all__ = ["host"]


async def accept(
    user: QueueUser, session: str | None = "a", wait_s: float = 0.0
) -> SessionPort | None:
    assert isinstance(user.gateway, LocalGateway)
    return await user.gateway.accept_session(user.subscription, session, wait_s=wait_s)


async def hold(user: QueueUser, session: str | None = "a", wait_s: float = 0.0) -> SessionPort:
    accepted = await accept(user, session, wait_s)
    assert accepted is not None
    return accepted


async def bodies(session: SessionPort, max_count: int = 10, wait_s: float = 0.0) -> str:
    received = await session.receive(max_count=max_count, wait_s=wait_s)
    return b"".join(each.message.body for each in received).decode()


async def test_when_another_process_has_a_session_then_it_is_locked_until_it_is_closed(
    open_local: OpenLocal,
) -> None:
    """R40: either way."""
    host, client = await open_local(SYSTEM_CLOCK), await open_local(SYSTEM_CLOCK)
    here, there = await QueueUser(host).create(), QueueUser(client)
    await here.send("1", "2", group="a")

    for holder, other in ((here, there), (there, here)):
        session = await hold(holder)
        waiting = asyncio.create_task(accept(other, wait_s=20))
        assert await accept(other) is None
        assert await bodies(session) == "12"
        await session.aclose()
        successor = await waiting
        assert successor is not None
        assert await bodies(successor) == "12"
        await successor.aclose()


async def test_when_a_message_is_sent_elsewhere_then_a_session_that_waits_has_it(
    open_local: OpenLocal,
) -> None:
    """R40."""
    host, client = await open_local(SYSTEM_CLOCK), await open_local(SYSTEM_CLOCK)
    here, there = await QueueUser(host).create(), QueueUser(client)
    waiting = asyncio.create_task(bodies(await hold(there), wait_s=20))

    await here.send("1", group="a")

    assert await waiting == "1"


async def test_when_a_remote_accept_is_cancelled_then_nothing_is_locked(
    open_local: OpenLocal,
) -> None:
    """R40."""
    host, client = await open_local(SYSTEM_CLOCK), await open_local(SYSTEM_CLOCK)
    here, there = await QueueUser(host).create(), QueueUser(client)
    held = await hold(here)
    waiting = asyncio.create_task(accept(there, wait_s=60))
    await there.stats()

    waiting.cancel()
    await asyncio.wait([waiting])

    waiting_too = asyncio.create_task(accept(here, wait_s=20))
    await held.aclose()
    assert await waiting_too is not None


async def test_when_the_host_closes_then_a_client_takes_over_with_its_session(
    open_local: OpenLocal,
) -> None:
    """R40, T4: the lock, what is in hand and what is not received yet."""
    host, client, third = [await open_local(SYSTEM_CLOCK) for _ in range(3)]
    here, there, other = await QueueUser(host).create(), QueueUser(client), QueueUser(third)
    await here.send("1", "2", group="a")
    session = await hold(there)
    [held] = await session.receive(max_count=1, wait_s=0.0)
    waiting = asyncio.create_task(accept(other, wait_s=60))

    await host.aclose()

    assert await accept(other) is None
    assert not await session.settle([ack(held)])
    await session.renew()
    assert await bodies(session) == "2"
    await session.aclose()
    successor = await waiting
    assert successor is not None
    assert await bodies(successor) == "2"


async def test_when_the_host_is_killed_then_a_living_client_keeps_its_session(
    open_local: OpenLocal, start_child: StartChild
) -> None:
    """R40, T3, T4."""
    host = await start_child("host")
    assert await host.line() == "host"
    client = await open_local(SYSTEM_CLOCK)
    there = QueueUser(client)
    await there.send("1", "2", group="a")
    session = await hold(there)
    [held] = await session.receive(max_count=1, wait_s=0.0)

    await host.kill()

    assert not await session.settle([ack(held)])
    assert await accept(there) is None
    assert await bodies(session) == "2"
    assert client.is_host


async def test_when_the_holder_is_killed_then_its_session_is_free_before_its_lock_ends(
    open_local: OpenLocal, start_child: StartChild
) -> None:
    """R41, R45: and what it had in hand counts as an attempt."""
    here = await QueueUser(await open_local(SYSTEM_CLOCK)).create()
    await here.send("1", "2", group="a")
    child = await start_child("session")
    held = await child.line()
    assert await accept(here) is None

    await child.kill()

    session = await hold(here, wait_s=20)
    first, second = await session.receive(max_count=5, wait_s=0.0)
    assert (first.message.id, first.attempt, second.attempt) == (held, 2, 1)


async def test_when_the_holder_hosts_and_is_killed_then_its_session_is_free(
    open_local: OpenLocal, start_child: StartChild
) -> None:
    """R41: whoever takes over knows from the file who held it, and that he is dead."""
    first = await open_local(SYSTEM_CLOCK)
    await (await QueueUser(first).create()).send("1", "2", group="a")
    await first.aclose()
    child = await start_child("session")
    held = await child.line()
    await child.kill()

    session = await hold(QueueUser(await open_local(SYSTEM_CLOCK)), wait_s=20)

    received = await session.receive(max_count=5, wait_s=0.0)
    assert [each.attempt for each in received] == [2, 1]
    assert received[0].message.id == held


async def test_when_a_client_closes_then_its_sessions_are_free(open_local: OpenLocal) -> None:
    """R40."""
    host, client = await open_local(SYSTEM_CLOCK), await open_local(SYSTEM_CLOCK)
    here, there = await QueueUser(host).create(), QueueUser(client)
    await here.send("1", group="a")
    await hold(there)

    await client.aclose()

    assert await bodies(await hold(here, wait_s=20)) == "1"


async def test_when_a_client_closes_then_an_accept_that_waits_ends_empty(
    open_local: OpenLocal,
) -> None:
    host, client = await open_local(SYSTEM_CLOCK), await open_local(SYSTEM_CLOCK)
    here, there = await QueueUser(host).create(), QueueUser(client)
    await hold(here)
    waiting = asyncio.create_task(accept(there, wait_s=60))
    await there.stats()

    await client.aclose()

    assert await waiting is None


def an_accept(number: int, *, is_repeat: bool = False) -> wire.AcceptSession:
    return wire.AcceptSession(number, "orders", "a", 0.0, LEASE_S, is_repeat)


async def granted(host: Hosting, request: wire.AcceptSession) -> wire.GrantedSession | None:
    return wire.decode_granted(await host.ask(request))


async def send_one(host: Hosting, number: int) -> None:
    packed = codec.pack(Message(body=b"1", group="a"))
    await host.ask(wire.SendRequest(number, 0, "orders", [packed], 0.0))


@pytest.mark.parametrize("restarts", [False, True])
async def test_when_an_accept_is_repeated_then_it_gets_the_lock_it_has(
    host: Hosting, restarts: bool
) -> None:
    """R40: its answer got lost, with or without its host."""
    first = await granted(host, an_accept(1))
    if restarts:
        await host.restart()

    again = await granted(host, an_accept(1, is_repeat=True))

    assert first is not None
    assert again is not None
    assert (again.session, again.token) == ("a", first.token)
    assert await granted(host, an_accept(2)) is None


@pytest.mark.parametrize("restarts", [False, True])
async def test_when_a_receive_of_a_session_is_repeated_then_it_gets_what_it_has_leased(
    host: Hosting, restarts: bool
) -> None:
    """R40."""
    await send_one(host, 1)
    grant = await granted(host, an_accept(2))
    assert grant is not None
    receive = wire.ReceiveInSession(3, "orders", "a", grant.token, 10, 0.0, is_repeat=True)
    first = wire.decode_handed(await host.ask(receive))
    if restarts:
        await host.restart()

    again = wire.decode_handed(await host.ask(receive))

    assert [(each.receipt, each.attempt) for each in first] == [
        (each.receipt, each.attempt) for each in again
    ]
    assert len(first) == 1


async def test_when_an_accept_is_cancelled_too_late_then_its_lock_is_released(
    host: Hosting,
) -> None:
    """R40: the answer reached nobody."""
    await granted(host, an_accept(1))

    await host.ask(wire.Cancel(2, target=1))

    assert await granted(host, an_accept(3)) is not None


async def test_when_a_lock_has_ended_then_its_token_is_good_for_nothing(
    host: Hosting, clock: VirtualClock
) -> None:
    """R41: over the wire the error is what it is; a release is done."""
    await send_one(host, 1)
    grant = await granted(host, an_accept(2))
    assert grant is not None
    await clock.advance(LEASE_S)

    for request in (
        wire.ReceiveInSession(3, "orders", "a", grant.token, 1, 0.0),
        wire.RenewSession(4, "orders", "a", grant.token, LEASE_S),
    ):
        with pytest.raises(SessionLockLost) as caught:
            await host.ask(request)
        assert (caught.value.queue, caught.value.session) == ("orders", "a")
    successor = await granted(host, an_accept(5))
    await host.ask(wire.ReleaseSession(6, "orders", "a", grant.token))
    assert successor is not None
    assert await granted(host, an_accept(7)) is None


async def test_when_the_owner_is_forgotten_then_its_lock_is_gone_from_the_file(
    host: Hosting,
) -> None:
    """R41."""
    await granted(host, an_accept(1))
    await host.dispatcher.forget(OWNER)

    await host.restart()

    assert list(host.engine.waiters_of("orders").state.sessions) == []


async def test_when_the_end_of_an_earlier_lock_was_not_written_then_the_later_one_counts(
    host: Hosting, clock: VirtualClock
) -> None:
    """R40: a full disk leaves its row behind."""
    first = await granted(host, an_accept(1))
    journal = host.engine.journal
    assert isinstance(journal, SqliteJournal)
    left_behind = ("~", "orders", "gone", None, clock.time_s() - 1, "a")
    insert = Statement("INSERT INTO sessions VALUES (?, ?, ?, ?, ?, ?)", [left_behind])
    await journal.append([insert], lambda error: None)

    await host.restart()

    again = await granted(host, an_accept(1, is_repeat=True))
    assert first is not None
    assert again is not None
    assert again.token == first.token
