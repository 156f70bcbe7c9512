"""Sessions of the memory gateway, beyond the contract: the engine's own promises."""

from __future__ import annotations

import asyncio

import pytest

from gateways._engine.engine import QueueEngine
from gateways._engine.journal import Locked, Unlocked
from gateways.memory import MemoryGateway
from pump.errors import QueueNotFound, SessionLockLost, StorageFailed
from pump.ports import SessionPort
from pump.testing import VirtualClock

from .queue_user import LEASE_S, QueueUser
from .test_engine_journal import PatientJournal


async def accept(
    user: QueueUser, session: str | None = None, wait_s: float = 0.0
) -> SessionPort | None:
    gateway = user.gateway
    assert isinstance(gateway, MemoryGateway)
    return await gateway.accept_session(user.subscription, session, wait_s=wait_s)


async def hold(user: QueueUser, session: str | None = None, wait_s: float = 0.0) -> SessionPort:
    accepted = await accept(user, session, wait_s)
    assert accepted is not None
    return accepted


async def bodies(session: SessionPort, max_count: int = 10) -> str:
    received = await session.receive(max_count=max_count, wait_s=0.0)
    return b"".join(each.message.body for each in received).decode()


@pytest.fixture
async def engine(clock: VirtualClock) -> QueueEngine:
    return QueueEngine(clock)


@pytest.fixture
async def orders(clock: VirtualClock, engine: QueueEngine) -> QueueUser:
    return await QueueUser(MemoryGateway(clock, engine=engine)).create()


async def test_when_a_gateway_closes_then_its_sessions_are_free_for_those_who_share_its_queues(
    clock: VirtualClock, engine: QueueEngine, orders: QueueUser
) -> None:
    """R40."""
    other = QueueUser(MemoryGateway(clock, engine=engine))
    await orders.send("1", "2", group="a")
    await bodies(await hold(orders, "a"), 1)
    assert await accept(other, "a") is None

    await orders.gateway.aclose()

    assert await bodies(await hold(other, "a")) == "12"


async def test_when_ordinary_receives_have_some_of_a_group_then_it_is_in_use(
    orders: QueueUser,
) -> None:
    """R40: nobody has a group together with somebody else."""
    await orders.send("1", "2", group="a")
    [held] = await orders.receive(1)
    before = await accept(orders, "a"), await accept(orders)

    await orders.ack(held)

    assert before == (None, None)
    assert await bodies(await hold(orders, "a")) == "2"


async def test_when_several_sessions_are_free_then_the_next_is_the_one_that_waits_longest(
    orders: QueueUser,
) -> None:
    for body, group in (("1", "b"), ("2", "a"), ("3", "b"), ("4", None), ("5", "c")):
        await orders.send(body, group=group)

    accepted = [await hold(orders) for _ in range(3)]

    assert [session.id for session in accepted] == ["b", "a", "c"]
    assert await accept(orders) is None


async def test_when_a_message_has_no_group_then_it_is_in_no_session(orders: QueueUser) -> None:
    await orders.send("1")

    assert await accept(orders) is None
    assert await orders.bodies() == ["1"]


async def test_when_the_group_is_the_empty_text_then_it_is_a_session_too(
    orders: QueueUser,
) -> None:
    await orders.send("1", group="")
    session = await hold(orders)

    assert (session.id, await bodies(session)) == ("", "1")


async def test_when_a_queue_is_purged_then_its_sessions_stay_with_who_has_them(
    orders: QueueUser, clock: VirtualClock
) -> None:
    await orders.send("1", "2", group="a")
    session = await hold(orders, "a")
    await bodies(session, 1)

    await orders.admin.purge("orders")

    await orders.send("3", group="a")
    assert await accept(orders, "a") is None
    assert await bodies(session) == "3"
    await clock.advance(LEASE_S)
    assert await bodies(await hold(orders, "a")) == "3"


async def test_when_a_queue_is_purged_then_who_waits_for_a_group_in_flight_has_it(
    orders: QueueUser, clock: VirtualClock
) -> None:
    """R40: at once, not at the end of the wait."""
    await orders.send("1", group="a")
    await orders.receive()
    waiting = asyncio.ensure_future(hold(orders, "a", wait_s=10 * LEASE_S))
    await clock.settle()

    await orders.admin.purge("orders")
    await clock.settle()

    assert waiting.done()
    assert (await waiting).id == "a"


async def test_when_a_queue_gets_other_settings_then_its_sessions_stay_with_who_has_them(
    orders: QueueUser,
) -> None:
    await orders.send("1", "2", group="a")
    session = await hold(orders, "a")
    strict = QueueUser(orders.gateway, ordering_guarantee=True)

    await strict.create()

    assert await orders.bodies() == []
    assert await bodies(session) == "12"


async def test_when_a_lock_ends_at_the_last_delivery_then_the_message_is_a_dead_letter(
    clock: VirtualClock,
) -> None:
    """R20, T5: in sessions too."""
    orders = await QueueUser(
        MemoryGateway(clock), max_receive_count=2, dead_letter_queue="dead"
    ).create()
    await orders.send("1", "2", group="a")

    for _ in range(2):
        await bodies(await hold(orders, "a"), 1)
        await clock.advance(LEASE_S)

    assert await bodies(await hold(orders, "a")) == "2"
    assert [each.body for each in await orders.admin.peek("dead")] == [b"1"]


async def test_when_a_lock_ends_while_a_receive_waits_then_it_says_so_at_once(
    orders: QueueUser, clock: VirtualClock
) -> None:
    """R41."""
    session = await hold(orders, "a")
    waiting = asyncio.ensure_future(session.receive(max_count=1, wait_s=10 * LEASE_S))
    await clock.settle()

    await clock.advance(LEASE_S)

    assert waiting.done()
    with pytest.raises(SessionLockLost) as caught:
        await waiting
    assert (caught.value.queue, caught.value.session) == ("orders", "a")


async def test_when_everybody_has_sessions_then_nothing_is_left_behind_by_a_thousand(
    engine: QueueEngine, orders: QueueUser
) -> None:
    """Offers to ordinary receives, which nobody makes here, do not pile up."""
    for number in range(1000):
        await orders.send("1", group=f"g{number}")
        session = await hold(orders, f"g{number}")
        received = await session.receive(max_count=1, wait_s=0.0)
        assert not await orders.ack(*received)
        await session.aclose()

    state = engine.waiters_of("orders").state
    assert state.order.candidate_count() < 100
    assert len(state.timers) < 200
    assert list(state.sessions) == []


async def test_when_the_queue_does_not_exist_then_accepting_names_it(clock: VirtualClock) -> None:
    """R2."""
    nowhere = QueueUser(MemoryGateway(clock), "nowhere")

    with pytest.raises(QueueNotFound, match="nowhere"):
        await accept(nowhere)


class TestJournal:
    """Memory never runs ahead of what is written."""

    @pytest.fixture
    def journal(self) -> PatientJournal:
        return PatientJournal()

    @pytest.fixture
    async def orders(self, clock: VirtualClock, journal: PatientJournal) -> QueueUser:
        orders = await QueueUser(MemoryGateway(clock, engine=QueueEngine(clock, journal))).create()
        await orders.send("1", group="a")
        return orders

    async def test_when_a_lock_cannot_be_written_then_nothing_is_locked(
        self, orders: QueueUser, journal: PatientJournal
    ) -> None:
        journal.refuses = lambda entry: isinstance(entry, Locked)
        with pytest.raises(StorageFailed):
            await accept(orders, "a")
        journal.refuses = lambda entry: False

        assert await bodies(await hold(orders, "a")) == "1"

    async def test_when_accepting_is_cancelled_before_it_is_written_then_nothing_is_locked(
        self, orders: QueueUser, journal: PatientJournal
    ) -> None:
        journal.hold()
        accepting = asyncio.create_task(accept(orders, "a"))
        await asyncio.wait([accepting], timeout=0)
        accepting.cancel()
        await asyncio.wait([accepting])
        journal.release()

        assert accepting.cancelled()
        assert await bodies(await hold(orders, "a")) == "1"

    async def test_when_a_release_cannot_be_written_then_the_lock_runs_out(
        self, orders: QueueUser, journal: PatientJournal, clock: VirtualClock
    ) -> None:
        session = await hold(orders, "a")
        await bodies(session)
        journal.refuses = lambda entry: isinstance(entry, Unlocked)
        with pytest.raises(StorageFailed):
            await session.aclose()
        journal.refuses = lambda entry: False

        assert await accept(orders, "a") is None
        await clock.advance(LEASE_S)
        assert await bodies(await hold(orders, "a")) == "1"

    async def test_when_an_ack_fails_after_a_renewal_then_its_message_is_renewed_with_the_lock(
        self, orders: QueueUser, journal: PatientJournal, clock: VirtualClock
    ) -> None:
        """R40: who was cancelled does not know what became of the ack."""
        session = await hold(orders, "a")
        [held] = await session.receive(max_count=1, wait_s=0.0)
        journal.hold()
        acking = asyncio.create_task(orders.ack(held))
        await asyncio.wait([acking], timeout=0)
        acking.cancel()
        await asyncio.wait([acking])
        await clock.advance(LEASE_S / 2)
        renewing = asyncio.create_task(session.renew())
        await asyncio.wait([renewing], timeout=0)
        journal.release(fails=True)
        with pytest.raises(StorageFailed):
            await renewing

        await session.renew()
        await clock.advance(LEASE_S * 3 / 4)

        assert not await orders.ack(held)
