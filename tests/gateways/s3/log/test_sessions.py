"""Sessions of logged queues between processes, and on a store that does not answer."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from gateways.s3.gateway import S3Gateway, Storage
from gateways.s3.layout import Layout
from gateways.s3.settings import S3Settings
from gateways.s3.store.objects import ServerTime
from pump.errors import SessionLockLost, UnsupportedOperation
from pump.message import Message
from pump.ports import SessionPort
from pump.subscription import MakeChannels, Subscription
from pump.testing import VirtualClock
from pump.testing.builders import ack

from ..model_store import ModelS3, ModelStore

LEASE_S = 30.0
ORDERS = Subscription(queue="orders", request=dict, lease=timedelta(seconds=LEASE_S))


class Machines:
    """Gateways of several machines on one bucket."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.s3 = ModelS3(self.clock.time_s)

    async def open(self, layout: Layout = Layout.LOG) -> S3Gateway:
        time = ServerTime(self.clock.now_s)
        store = ModelStore(self.s3, time, self.clock.now_s)
        settings = S3Settings(bucket="bucket", layout=layout)
        gateway = S3Gateway(settings, self.clock, storage=Storage(store=store, time=time))
        await gateway.open()
        for spec in ORDERS.queue_specs():
            await gateway.admin().ensure(spec, MakeChannels.CREATE)
        return gateway


@pytest.fixture
def machines() -> Machines:
    return Machines()


async def send(gateway: S3Gateway, *bodies: str, group: str | None = "a") -> None:
    messages = [Message(body=body.encode(), group=group) for body in bodies]
    await gateway.producer("orders").send(messages)


async def hold(gateway: S3Gateway, session: str | None = "a") -> SessionPort:
    accepted = await gateway.accept_session(ORDERS, session, wait_s=0.0)
    assert accepted is not None
    return accepted


async def bodies(session: SessionPort) -> str:
    received = await session.receive(max_count=10, wait_s=0.0)
    return b"".join(each.message.body for each in received).decode()


async def test_when_another_machine_has_a_session_then_it_is_locked_until_it_is_closed(
    machines: Machines,
) -> None:
    """R40."""
    one, other = await machines.open(), await machines.open()
    await send(one, "1", "2")
    session = await hold(one)
    assert await bodies(session) == "12"
    waiting = asyncio.create_task(other.accept_session(ORDERS, "a", wait_s=20.0))
    await machines.clock.settle()

    assert await other.accept_session(ORDERS, "a", wait_s=0.0) is None
    await session.aclose()
    await machines.clock.advance(2)

    successor = await waiting
    assert successor is not None
    assert await bodies(successor) == "12"
    await one.aclose()
    await other.aclose()


async def test_when_a_machine_is_gone_then_its_session_is_free_after_the_lock_and_not_before(
    machines: Machines,
) -> None:
    """R41: nobody hears from it again, until it wakes up."""
    one, other = await machines.open(), await machines.open()
    await send(one, "1")
    lost = await hold(one)
    [held] = await lost.receive(max_count=1, wait_s=0.0)
    await machines.clock.advance(LEASE_S - 2.1)
    assert await other.accept_session(ORDERS, "a", wait_s=0.0) is None
    await machines.clock.advance(4.2)

    session = await hold(other)

    [again] = await session.receive(max_count=1, wait_s=0.0)
    assert (again.message.id, again.attempt) == (held.message.id, 2)
    with pytest.raises(SessionLockLost):
        await lost.settle([ack(held)])
    assert not await session.settle([ack(again)])
    await one.aclose()
    await other.aclose()


async def test_when_two_machines_want_the_next_session_then_each_has_another(
    machines: Machines,
) -> None:
    """R40."""
    one, other = await machines.open(), await machines.open()
    await send(one, "1", group="ä \ud800")
    await send(one, "2", group="b")

    accepted = await asyncio.gather(hold(one, None), hold(other, None))

    assert {session.id for session in accepted} == {"ä \ud800", "b"}
    assert await one.accept_session(ORDERS, None, wait_s=0.0) is None
    await one.aclose()
    await other.aclose()


async def test_when_a_queue_is_kept_as_leases_then_accepting_names_the_layout_that_can(
    machines: Machines,
) -> None:
    """R40: an honest answer."""
    gateway = await machines.open(Layout.LEASES)

    with pytest.raises(UnsupportedOperation, match='layout="log"'):
        await gateway.accept_session(ORDERS, "a", wait_s=0.0)

    assert not gateway.capabilities.has_sessions
    await gateway.aclose()


async def test_when_nothing_is_wanted_of_a_session_then_nothing_is_committed(
    machines: Machines,
) -> None:
    """R40: a window without credit asks for none."""
    gateway = await machines.open()
    await send(gateway, "A")
    session = await hold(gateway)
    before = machines.s3.counts["put"]

    assert await session.receive(max_count=0, wait_s=0.0) == []

    assert machines.s3.counts["put"] == before
    await session.aclose()
    await gateway.aclose()
