"""The queues of a gateway: opened once, listed with little work, changed by others (R2, R50)."""

from __future__ import annotations

import pytest

from gateways.s3 import Layout
from gateways.s3.layout import QueueKeys
from gateways.s3.store.objects import Put
from pump.capabilities import OrderingMode
from pump.errors import ConnectionFailed, MessageTooLarge, QueueMismatch, QueueNotFound
from pump.testing.builders import a_message, a_subscription

from .houses import ROOT, House, ensure

# -- listing ------------------------------------------------------------------------------------


async def test_when_queues_are_listed_then_by_name_whatever_their_names_are(house: House) -> None:
    gateway = await house.gateway()
    names = sorted(["orders", "orders0", "orders/eu", "Žluť 🐎", "a b", "orders.dead", "%2F"])
    for name in names:
        await ensure(gateway, name)

    assert [stats.name for stats in await gateway.admin().queues()] == names


async def test_when_queues_are_full_then_listing_them_takes_few_requests(house: House) -> None:
    """R50: their objects are jumped over."""
    gateway = await house.gateway()
    for number in range(3):
        await ensure(gateway, f"q{number}")
        keys = QueueKeys(ROOT, f"q{number}")
        for place in range(1500):
            house.s3.apply(Put(f"{keys.messages}{place:04d}", b"x"))
            house.s3.apply(Put(f"{keys.segments}{place:04d}", b"x"))
    before = house.s3.counts["list"]

    names = [name async for name in gateway._queues.names()]

    assert names == ["q0", "q1", "q2"]
    assert house.s3.counts["list"] - before <= 7


async def test_when_a_queue_was_removed_but_for_remains_then_it_is_not_listed(
    house: House,
) -> None:
    """What has no facts is no queue."""
    gateway = await house.gateway()
    house.s3.apply(Put(f"{QueueKeys(ROOT, 'gone').messages}1", b"x"))

    assert await gateway.admin().queues() == []


# -- using --------------------------------------------------------------------------------------


async def test_when_a_queue_is_used_much_then_its_facts_are_read_once_a_minute(
    house: House, layout: Layout
) -> None:
    """R50."""
    gateway = await house.gateway(layout)
    await ensure(gateway, "orders")
    queues = gateway._queues
    before = await queues.of("orders")
    reads = house.s3.counts["get"]

    for _ in range(3):
        assert await queues.of("orders") is before
    await house.clock.advance(61.0)
    for _ in range(3):
        assert await queues.of("orders") is before

    assert house.s3.counts["get"] == reads + 1


async def test_when_another_process_changes_a_queue_then_this_one_follows(
    house: House, layout: Layout
) -> None:
    """R36: settings are the queue's, not a process's."""
    ours, theirs = await house.gateway(layout), await house.gateway(layout)
    await ensure(ours, "orders")
    await ours.producer("orders").send([a_message("A"), a_message("B")])

    await ensure(theirs, "orders", ordering=OrderingMode.LIFO)

    await house.clock.advance(61.0)
    consumer = ours.consumer(a_subscription("orders"))
    [first] = await consumer.receive(max_count=1, wait_s=5.0)
    assert first.message.body == b"B"


async def test_when_a_queue_is_removed_then_it_is_missed_within_a_minute(house: House) -> None:
    """R2."""
    gateway = await house.gateway()
    await ensure(gateway, "orders")
    await gateway.admin().stats("orders")
    house.s3.objects.clear()

    await house.clock.advance(61.0)

    with pytest.raises(QueueNotFound):
        await gateway.producer("orders").send([a_message()])


async def test_when_a_queue_is_made_anew_in_the_other_layout_then_that_is_used(
    house: House,
) -> None:
    ours, theirs = await house.gateway(), await house.gateway()
    await ensure(ours, "orders")
    await ours.admin().stats("orders")
    house.s3.objects.clear()
    await ensure(theirs, "orders", options={"layout": "log"})

    await house.clock.advance(61.0)
    await ours.producer("orders").send([a_message("A")])

    assert (await theirs.admin().stats("orders")).visible == 1


async def test_when_a_dead_letter_queue_is_missing_then_it_is_made_too(house: House) -> None:
    """R22: or the last delivery would have nowhere to go."""
    gateway = await house.gateway()

    await ensure(gateway, "orders", max_receive_count=3, dead_letter_queue="dead")

    assert [stats.name for stats in await gateway.admin().queues()] == ["dead", "orders"]


async def test_when_another_layout_is_asked_for_then_it_is_refused(house: House) -> None:
    """R56."""
    gateway = await house.gateway()
    await ensure(gateway, "orders")

    with pytest.raises(QueueMismatch):
        await ensure(gateway, "orders", options={"layout": "log"})


async def test_when_both_layouts_are_in_one_place_then_they_do_not_meet(house: House) -> None:
    """The layout is chosen by the queue."""
    gateway = await house.gateway()
    await ensure(gateway, "one", options={"layout": "leases"})
    await ensure(gateway, "two", options={"layout": "log"})

    await gateway.producer("one").send([a_message("1")])
    await gateway.producer("two").send([a_message("2")])

    assert [m.body for m in await gateway.admin().peek("one")] == [b"1"]
    assert [m.body for m in await gateway.admin().peek("two")] == [b"2"]


async def test_when_a_body_is_too_large_then_nothing_is_sent(house: House, layout: Layout) -> None:
    """R1, R58."""
    gateway = await house.gateway(layout)
    await ensure(gateway, "orders")
    limit = gateway.capabilities.max_body_bytes
    assert limit is not None

    with pytest.raises(MessageTooLarge):
        await gateway.producer("orders").send([a_message("A"), a_message(b"x" * (limit + 1))])
    await gateway.producer("orders").send([a_message(b"x" * limit)])

    assert [len(m.body) for m in await gateway.admin().peek("orders")] == [limit]


async def test_when_the_gateway_is_closed_then_no_queue_is_opened(house: House) -> None:
    gateway = await house.gateway()
    await ensure(gateway, "orders")
    await gateway.aclose()

    with pytest.raises(ConnectionFailed, match="closed"):
        await gateway.producer("orders").send([a_message()])
