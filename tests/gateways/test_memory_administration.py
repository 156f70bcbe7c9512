"""The memory gateway: making, checking, looking into, emptying and closing queues."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gateways.memory import MemoryGateway, from_url
from pump.capabilities import OrderingMode
from pump.errors import ConfigurationError, QueueMismatch, QueueNotFound
from pump.subscription import MakeChannels, QueueSpec
from pump.testing.virtual_clock import VirtualClock

from .queue_user import QueueUser


@pytest.fixture
def gateway(clock: VirtualClock) -> MemoryGateway:
    return MemoryGateway(clock)


@pytest.fixture
async def orders(gateway: MemoryGateway) -> QueueUser:
    return await QueueUser(gateway).create()


async def test_when_the_queue_does_not_exist_then_every_operation_says_so(
    gateway: MemoryGateway,
) -> None:
    """R2."""
    nobody = QueueUser(gateway, "nowhere")

    for operation in (
        nobody.send("a"),
        nobody.receive(),
        nobody.admin.peek("nowhere"),
        nobody.admin.purge("nowhere"),
        nobody.admin.ensure(QueueSpec(name="nowhere"), MakeChannels.VALIDATE),
    ):
        with pytest.raises(QueueNotFound, match="nowhere"):
            await operation
    await nobody.admin.ensure(QueueSpec(name="nowhere"), MakeChannels.ASSUME)

    assert await nobody.admin.queues() == []


async def test_when_the_settings_differ_then_validate_refuses_and_create_changes_them(
    orders: QueueUser,
) -> None:
    wanted = QueueSpec(name="orders", ordering=OrderingMode.LIFO)
    await orders.send("a", "b")

    with pytest.raises(QueueMismatch, match="is_lifo"):
        await orders.admin.ensure(wanted, MakeChannels.VALIDATE)
    await orders.admin.ensure(wanted, MakeChannels.CREATE)
    await orders.admin.ensure(QueueSpec(name="orders"), MakeChannels.CREATE)

    assert await orders.bodies() == ["b", "a"]


@pytest.mark.parametrize(
    "fields",
    [
        {"options": {"visibility": 3}},
        {"options": {"deduplication_window": "long"}},
        {"ordering": OrderingMode.LIFO, "ordering_guarantee": True},
        {"max_receive_count": 3},
        {"max_receive_count": 0, "dead_letter_queue": "dead"},
    ],
)
async def test_when_a_queue_cannot_work_then_nothing_is_made(
    gateway: MemoryGateway, fields: dict[str, Any]
) -> None:
    """R22, R36, R56."""
    spec = QueueSpec(**{"name": "q", **fields})

    with pytest.raises(ConfigurationError):
        await gateway.admin().ensure(spec, MakeChannels.CREATE)

    assert await gateway.admin().queues() == []


def test_when_a_queue_has_no_name_then_it_cannot_even_be_asked_for() -> None:
    """R56."""
    with pytest.raises(ConfigurationError, match=r"QueueSpec\.name"):
        QueueSpec(name=" ")


async def test_when_purged_then_nothing_is_left_and_receipts_are_void(orders: QueueUser) -> None:
    await orders.send("a", "b", group="g")
    [held] = await orders.receive(1)
    await orders.send("c", delay_s=5)

    assert await orders.admin.purge("orders") == 3

    assert len(await orders.ack(held)) == 1
    stats = await orders.stats()
    assert (stats.visible, stats.in_flight, stats.delayed) == (0, 0, 0)
    assert stats.oldest_age_s is None
    await orders.send("d", group="g")
    assert await orders.bodies() == ["d"]


async def test_when_peeked_then_no_lease_and_no_attempt(
    orders: QueueUser, clock: VirtualClock
) -> None:
    await orders.send("a", "b")
    await orders.send("later", delay_s=9)
    await clock.advance(4)

    peeked = await orders.admin.peek("orders", max_count=5)

    assert [m.body for m in peeked] == [b"a", b"b"]
    stats = await orders.stats()
    assert (stats.visible, stats.in_flight, stats.delayed, stats.oldest_age_s) == (2, 0, 1, 4.0)
    assert [d.attempt for d in await orders.receive()] == [1, 1]


async def test_when_closed_then_waiting_receives_go_home_and_messages_stay(
    gateway: MemoryGateway, orders: QueueUser, clock: VirtualClock
) -> None:
    waiting = asyncio.create_task(orders.receive(wait_s=60))
    await clock.settle()

    await gateway.aclose()
    await gateway.aclose()

    assert await waiting == []
    assert clock.next_due_in_s() is None
    await gateway.open()
    await orders.send("a")
    assert await orders.bodies() == ["a"]


async def test_when_urls_share_a_name_then_they_share_queues() -> None:
    """R55."""
    one, two, other = (from_url(u) for u in ("memory://shop", "memory://shop", "memory://"))
    await QueueUser(one).create()

    await QueueUser(two).send("a")

    assert await QueueUser(one).bodies() == ["a"]
    assert await other.admin().queues() == []


def test_when_a_url_makes_no_sense_then_it_is_refused() -> None:
    with pytest.raises(ConfigurationError):
        from_url("memory://name/path")
