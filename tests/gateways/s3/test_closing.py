"""Closing a gateway whose store no longer answers: it ends, and whoever waits is told."""

from __future__ import annotations

import asyncio

import pytest

from gateways.s3 import Layout, S3Settings
from pump.clock import yield_to_loop
from pump.errors import ConnectionFailed
from pump.testing import defer
from pump.testing.builders import a_message, a_subscription

from .houses import ROOT, House, ensure, take

PATIENCE_S = S3Settings(bucket="bucket").patience_s


async def test_when_the_store_is_silent_then_closing_takes_no_longer_than_one_request(
    house: House, layout: Layout
) -> None:
    """R51: and leaves no task behind."""
    gateway = await house.gateway(layout)
    await ensure(gateway, "orders")
    producer = gateway.producer("orders")
    await producer.send([a_message("A")])
    tasks = asyncio.all_tasks()
    house.is_silent.set()
    sending = [asyncio.create_task(producer.send([a_message(each)])) for each in "BC"]
    receiving = asyncio.create_task(take(gateway))
    await house.clock.settle()
    receiving.cancel()
    await house.clock.settle()

    closing = asyncio.create_task(gateway.aclose())
    await house.clock.advance(PATIENCE_S - 1.0)
    was_waiting = not closing.done()
    await house.clock.advance(1.0)

    assert was_waiting
    await closing
    for each in sending:
        with pytest.raises(ConnectionFailed, match="closed"):
            await each
    assert asyncio.all_tasks() - tasks <= {receiving}


async def test_when_a_send_waits_behind_one_without_an_answer_then_closing_tells_both(
    house: House, layout: Layout
) -> None:
    """R51: what had gathered for the next write hears of the end as well."""
    gateway = await house.gateway(layout)
    await ensure(gateway, "orders")
    producer = gateway.producer("orders")
    await producer.send([a_message("A")])
    house.is_silent.set()
    first = asyncio.create_task(producer.send([a_message("B")]))
    await house.clock.settle()
    behind = asyncio.create_task(producer.send([a_message("C")]))
    await house.clock.settle()

    closing = asyncio.create_task(gateway.aclose())
    await house.clock.advance(PATIENCE_S)
    await closing
    done, _ = await asyncio.wait([first, behind], timeout=5)

    assert done == {first, behind}
    for each in done:
        assert isinstance(each.exception(), ConnectionFailed)


async def test_when_the_store_is_silent_then_closing_leaves_no_burial_behind(
    house: House, layout: Layout
) -> None:
    """R20, R51: a dead letter that could not be moved, and is to be tried again, is another's."""
    gateway = await house.gateway(layout)
    await ensure(gateway, "orders", max_receive_count=1, dead_letter_queue="dead")
    producer = gateway.producer("orders")
    consumer = gateway.consumer(a_subscription(queue="orders"))
    tasks = asyncio.all_tasks()
    await producer.send([a_message("A")])
    [last] = await consumer.receive(max_count=1, wait_s=0.0)
    house.remove(f"{ROOT}queues/dead/queue.json")
    assert await consumer.settle([defer(last, seconds=0)]) == []
    house.is_silent.set()
    sending = asyncio.create_task(producer.send([a_message("B")]))
    await house.clock.settle()

    closing = asyncio.create_task(gateway.aclose())
    await house.clock.advance(PATIENCE_S)
    await closing

    with pytest.raises(ConnectionFailed):
        await sending
    assert asyncio.all_tasks() <= tasks


async def test_when_the_store_answers_then_closing_hands_back_what_was_being_claimed(
    house: House, layout: Layout
) -> None:
    """R4: at once, for whoever else is there."""
    gateway, other = await house.gateway(layout), await house.gateway(layout)
    await ensure(gateway, "orders")
    await gateway.producer("orders").send([a_message("A")])
    consumer = gateway.consumer(a_subscription(queue="orders"))
    await other.admin().stats("orders")

    receiving = asyncio.create_task(consumer.receive(max_count=1, wait_s=0.0))
    await yield_to_loop()
    receiving.cancel()
    await gateway.aclose()
    await house.clock.advance(3.0)

    [again] = await take(other)
    assert again.attempt == 1
