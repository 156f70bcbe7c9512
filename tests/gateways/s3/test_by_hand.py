"""Objects that were changed or removed by hand: what docs/gateways-s3.md says of them."""

from __future__ import annotations

import attrs
import pytest
from structlog.testing import capture_logs

from gateways.s3 import Layout, S3Gateway
from gateways.s3.layout import QueueKeys
from gateways.s3.queues import LOOK_AGAIN_S
from pump.errors import MappingError, QueueMismatch, QueueNotFound, StorageFailed
from pump.message import Delivery
from pump.observability import vocabulary
from pump.outcome import ACK, Refusal, Settlement
from pump.testing import defer
from pump.testing.builders import a_message, a_subscription

from .houses import ROOT, House, ensure, take

KEYS = QueueKeys(ROOT, "orders")
OVER_S = 33.0
"""After this a lease of 30 s is over for everyone."""


async def send(gateway: S3Gateway, *texts: str) -> None:
    for text in texts:
        await gateway.producer("orders").send([a_message(text)])


async def settle(gateway: S3Gateway, *deliveries: Delivery) -> list[Refusal]:
    consumer = gateway.consumer(a_subscription(queue="orders"))
    return [*await consumer.settle([Settlement(each, ACK) for each in deliveries])]


def bodies(deliveries: list[Delivery]) -> str:
    return b"".join(each.message.body for each in deliveries).decode()


async def a_queue(house: House, layout: Layout) -> S3Gateway:
    gateway = await house.gateway(layout)
    await ensure(gateway, "orders")
    return gateway


# -- both layouts -------------------------------------------------------------------------------


async def test_when_the_queue_file_is_removed_then_the_queue_is_not_found_until_it_is_made_again(
    house: House, layout: Layout
) -> None:
    """R2: its messages stay."""
    gateway = await a_queue(house, layout)
    await send(gateway, "A")
    house.remove(KEYS.facts)
    await house.clock.advance(LOOK_AGAIN_S)

    with pytest.raises(QueueNotFound):
        await take(gateway)
    await ensure(gateway, "orders")

    assert bodies(await take(gateway)) == "A"


async def test_when_the_queue_file_cannot_be_read_then_who_runs_says_so_and_goes_on(
    house: House, layout: Layout
) -> None:
    """R56: whoever starts cannot know what the queue is like."""
    gateway, newcomer = await a_queue(house, layout), await house.gateway(layout)
    await send(gateway, "A")
    file = house.s3.objects[KEYS.facts]
    house.s3.objects[KEYS.facts] = attrs.evolve(file, body=b"scribble")
    await house.clock.advance(LOOK_AGAIN_S)

    for each in (newcomer, newcomer, gateway):
        with pytest.raises(QueueMismatch, match=r"queue\.json"):
            await take(each)

    assert bodies(await take(gateway)) == "A"


# -- leases -------------------------------------------------------------------------------------


async def test_when_the_tail_is_removed_then_sends_go_on_behind_what_is_there(
    house: House,
) -> None:
    """R36."""
    gateway = await a_queue(house, Layout.LEASES)
    await send(gateway, "A", "B")
    house.remove(KEYS.tail)

    await send(gateway, "C")

    assert bodies(await take(gateway)) == "ABC"


async def test_when_the_tail_is_removed_then_ends_that_were_left_end_nothing_new(
    house: House,
) -> None:
    """R1: a process died between the removal of a batch and that of its leases."""
    gateway = await a_queue(house, Layout.LEASES)
    await send(gateway, "A")
    assert await settle(gateway, *await take(gateway)) == []
    for key in (*house.keys("messages/"), KEYS.tail):
        house.remove(key)

    await send(await house.gateway(), "B")

    assert bodies(await take(await house.gateway())) == "B"


async def test_when_the_tail_cannot_be_read_then_sends_fail_until_it_is_removed(
    house: House,
) -> None:
    """R1: no number is taken twice."""
    gateway, other = await a_queue(house, Layout.LEASES), await house.gateway()
    await send(gateway, "A")
    tail = house.s3.objects[KEYS.tail]
    house.s3.objects[KEYS.tail] = attrs.evolve(tail, body=b"scribble")

    with pytest.raises(MappingError):
        await send(other, "lost")
    house.remove(KEYS.tail)
    await send(other, "B")

    assert bodies(await take(other)) == "AB"


async def test_when_a_batch_is_removed_then_only_its_messages_are_gone(house: House) -> None:
    """R5: whoever has one of them can still ack it."""
    gateway = await a_queue(house, Layout.LEASES)
    await send(gateway, "A", "B", "C")
    held = await take(gateway, 1)
    for key in house.keys("messages/")[:2]:
        house.remove(key)

    assert bodies(await take(gateway)) == "C"
    assert bodies(held) == "A"
    assert await settle(gateway, *held) == []


async def test_when_a_lease_is_removed_then_its_message_comes_again_and_its_owner_is_refused(
    house: House,
) -> None:
    """R6, R9: attempts are counted anew."""
    gateway, other = await a_queue(house, Layout.LEASES), await house.gateway()
    await send(gateway, "A")
    held = await take(gateway)
    house.remove(house.keys("pending/")[0])

    again = await take(other)
    [refusal] = await settle(gateway, *held)

    assert (bodies(again), again[0].attempt) == ("A", 1)
    assert refusal.is_final
    assert await settle(other, *again) == []


async def test_when_an_unreadable_lease_is_removed_then_its_message_is_free(house: House) -> None:
    """R8."""
    gateway, other = await a_queue(house, Layout.LEASES), await house.gateway()
    await send(gateway, "A")
    await take(gateway)
    [lease] = house.keys("pending/")
    house.s3.objects[lease] = attrs.evolve(house.s3.objects[lease], body=b"scribble")
    await house.clock.advance(OVER_S)
    assert await take(other) == []

    house.remove(lease)
    await house.clock.advance(2 * LOOK_AGAIN_S)

    assert bodies(await take(other)) == "A"


# -- log ----------------------------------------------------------------------------------------


async def test_when_a_segment_is_removed_then_the_others_are_delivered(house: House) -> None:
    """R8: restored, its messages come as well."""
    gateway, other = await a_queue(house, Layout.LOG), await house.gateway()
    await send(gateway, "A", "B", "C")
    first = house.s3.objects[house.keys("segments/")[0]]
    segment = next(key for key, there in house.s3.objects.items() if there is first)
    house.remove(segment)

    passed = bodies(await take(other))
    await house.clock.advance(OVER_S)
    house.s3.objects[segment] = first

    assert len(passed) == 2
    assert sorted(bodies(await take(other))) == ["A", "B", "C"]


async def test_when_nothing_but_an_unreadable_segment_is_left_then_it_says_so_once_a_lease(
    house: House,
) -> None:
    """It is not asked for again and again."""
    gateway, other = await a_queue(house, Layout.LOG), await house.gateway()
    await send(gateway, "A")
    [segment] = house.keys("segments/")
    house.s3.objects[segment] = attrs.evolve(house.s3.objects[segment], body=b"scribble")

    with pytest.raises(StorageFailed, match="restore"):
        await take(other)

    assert await take(other) == []
    await house.clock.advance(OVER_S)
    with pytest.raises(StorageFailed, match="restore"):
        await take(other)


async def test_when_the_head_is_removed_then_the_queue_is_empty_and_goes_on(house: House) -> None:
    """The log begins anew."""
    gateway = await a_queue(house, Layout.LOG)
    await send(gateway, "A")
    held = await take(gateway)
    house.remove(KEYS.head)

    await send(gateway, "B")

    assert bodies(await take(gateway)) == "B"
    [refusal] = await settle(gateway, *held)
    assert refusal.is_final


async def test_when_the_head_cannot_be_read_then_nothing_is_changed_until_it_is_restored(
    house: House,
) -> None:
    gateway, other = await a_queue(house, Layout.LOG), await house.gateway()
    await send(gateway, "A")
    good = house.s3.objects[KEYS.head]
    house.s3.objects[KEYS.head] = attrs.evolve(good, body=b"scribble")

    for each in (gateway, other):
        with pytest.raises(StorageFailed, match="log/head"):
            await take(each)
    assert house.s3.objects[KEYS.head].body == b"scribble"
    house.s3.objects[KEYS.head] = good

    assert bodies(await take(other)) == "A"


async def test_when_the_dead_letter_queue_is_removed_then_it_is_said_and_made_up_for(
    house: House, layout: Layout
) -> None:
    """R20, T1: what had its last delivery waits, and moves when the queue is back."""
    gateway = await house.gateway(layout)
    await ensure(gateway, "orders", max_receive_count=1, dead_letter_queue="dead")
    await gateway.producer("orders").send([a_message("A")])
    [last] = await take(gateway)
    key = f"{ROOT}queues/dead/queue.json"
    facts = house.remove(key)

    consumer = gateway.consumer(a_subscription(queue="orders"))
    with capture_logs() as lines:
        assert await consumer.settle([defer(last, seconds=0)]) == []
    house.s3.objects[key] = facts
    await house.clock.advance(5.0)
    await take(gateway)

    [said] = [line for line in lines if line["event"] == vocabulary.ROUTING_FAILED]
    assert said["queue"] == "dead"
    assert "QueueNotFound" in said["error"]
    [dead] = await take(gateway, queue="dead")
    assert dead.message.body == b"A"
