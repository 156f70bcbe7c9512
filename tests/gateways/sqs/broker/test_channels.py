"""Queues that are missing, many messages, and many threads."""

from __future__ import annotations

import asyncio
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
import structlog.testing

from pump.blocking import BlockingApp
from pump.errors import QueueMismatch, QueueNotFound
from pump.message import Delivery
from pump.subscription import MakeChannels

from .bench import Bench, Job
from .plain_sqs import packed

pytestmark = pytest.mark.broker


async def test_when_a_queue_is_missing_and_validated_then_the_pump_does_not_start(
    bench: Bench, suffix: str
) -> None:
    """R2: names the queue, and makes none."""
    shop = bench.shop(queue=f"jobs{suffix}", make_channels=MakeChannels.VALIDATE)

    with pytest.raises(QueueNotFound, match=f"jobs{suffix}"):
        async with shop.working():
            pass

    reply = await asyncio.to_thread(bench.plain.client.list_queues)
    assert not reply.get("QueueUrls")


async def test_when_the_dead_letter_queue_is_missing_and_validated_then_it_does_not_start(
    bench: Bench,
) -> None:
    """R22."""
    await bench.plain.make("jobs")
    shop = bench.shop(dead_letter_queue="dead", make_channels=MakeChannels.VALIDATE)

    with pytest.raises(QueueNotFound, match="dead"):
        async with shop.by_hand():
            pass


async def test_when_a_queue_differs_and_is_validated_then_the_difference_is_named(
    bench: Bench,
) -> None:
    """R22, R56."""
    await bench.plain.make("jobs")
    shop = bench.shop(
        options={"retention": timedelta(hours=1)}, make_channels=MakeChannels.VALIDATE
    )

    with pytest.raises(QueueMismatch, match="MessageRetentionPeriod"):
        async with shop.by_hand():
            pass


async def test_when_a_queue_is_missing_and_assumed_then_the_first_operation_says_so(
    bench: Bench, suffix: str
) -> None:
    """R2."""
    shop = bench.shop(queue=f"jobs{suffix}", make_channels=MakeChannels.ASSUME)

    async with shop.by_hand() as consumer:
        with pytest.raises(QueueNotFound, match=f"jobs{suffix}"):
            await consumer.receive()
        with pytest.raises(QueueNotFound, match=f"jobs{suffix}"):
            await shop.post("work")


async def test_when_an_assumed_queue_comes_later_then_the_pump_finds_it_by_itself(
    bench: Bench, suffix: str
) -> None:
    """R51, law 7: a missing queue is waited for, and costs no restart."""
    shop = bench.shop(queue=f"jobs{suffix}", make_channels=MakeChannels.ASSUME)

    with structlog.testing.capture_logs() as lines:
        async with shop.working() as dispatcher:
            while not any(line["event"] == "receive.failed" for line in lines):
                await asyncio.to_thread(bench.plain.client.list_queues)
            await bench.plain.make(f"jobs{suffix}")
            await shop.post("work")
            await shop.diary.until_settled(1)
            restarts = dispatcher.performers[0].stats.restarts

    assert shop.diary.statuses == ["processed"]
    assert restarts == 0


async def test_when_the_queue_is_deleted_while_the_pump_runs_and_made_again_then_it_goes_on(
    bench: Bench, suffix: str
) -> None:
    """R51, law 7."""
    shop = bench.shop(queue=f"jobs{suffix}")

    with structlog.testing.capture_logs() as lines:
        async with shop.working() as dispatcher:
            await shop.post("before")
            await shop.diary.until_settled(1)
            await bench.plain.delete(f"jobs{suffix}")
            while not any(line["event"] == "receive.failed" for line in lines):
                await asyncio.to_thread(bench.plain.client.list_queues)
            await bench.plain.make(f"jobs{suffix}")
            await shop.post("after")
            await shop.diary.until_settled(2)
            restarts = dispatcher.performers[0].stats.restarts

    assert shop.diary.statuses == ["processed", "processed"]
    assert restarts == 0


async def test_when_many_are_read_then_each_comes_once_and_exactly_as_it_was_sent(
    bench: Bench, suffix: str
) -> None:
    """R1, R3, R58: 60 messages in batches, sent by us."""
    shop = bench.shop(queue=f"jobs{suffix}")
    tasks = [f"task {number}" for number in range(60)]
    async with shop.by_hand() as consumer:
        ids = await shop.post(*tasks)
        received: list[Delivery] = []
        while len(received) < len(ids):
            batch = await consumer.receive(10)
            received += batch
            await asyncio.gather(*(consumer.ack(delivery) for delivery in batch))

    assert Counter(each.message.id for each in received) == Counter(ids)
    assert sorted(each.message.body for each in received) == sorted(
        b'{"task":"%s"}' % task.encode() for task in tasks
    )
    if suffix:
        assert [each.message.id for each in received] == list(ids), "one group, in order"
    assert await bench.plain.depth(f"jobs{suffix}") == (0, 0, 0)


def test_when_many_threads_post_through_the_blocking_face_then_each_message_arrives_once(
    bench: Bench, suffix: str
) -> None:
    """R53: 8 threads, one app, one by one and in batches."""
    shop = bench.shop(queue=f"jobs{suffix}")

    with BlockingApp(shop.app) as blocking:

        def post(thread: int) -> list[str]:
            one = blocking.post(Job(f"{thread}"), group=f"{thread}")
            many = [Job(f"{thread} {number}") for number in range(12)]
            return [one, *blocking.post_all(many, group=f"{thread}")]

        with ThreadPoolExecutor(8) as threads:
            posted = [id_ for ids in threads.map(post, range(8)) for id_ in ids]

    found = asyncio.run(bench.plain.take_all(f"jobs{suffix}"))
    assert len(posted) == 8 * 13
    assert Counter(packed(raw)["id"] for raw in found) == Counter(posted)


def test_when_the_blocking_face_consumes_then_rejection_works_as_on_the_loop(
    bench: Bench, suffix: str
) -> None:
    """R25–R27 for the sync path, R34."""
    shop = bench.shop(queue=f"jobs{suffix}", dead_letter_queue=f"dead{suffix}")

    with BlockingApp(shop.app) as blocking, blocking.consumer(shop.subscription) as consumer:
        id_ = blocking.post(Job())
        [delivery] = consumer.receive()
        consumer.reject(delivery, detail="no stock")

    [copy] = asyncio.run(bench.plain.take(f"dead{suffix}"))
    assert packed(copy)["id"] == id_
    assert asyncio.run(bench.plain.depth(f"jobs{suffix}")) == (0, 0, 0)


async def test_when_a_queue_is_named_by_url_or_arn_then_it_is_the_same_queue(
    bench: Bench, suffix: str
) -> None:
    """R1: sent by name, read by URL, and by ARN."""
    arn = await bench.plain.make(f"jobs{suffix}")
    url = await bench.plain.url(f"jobs{suffix}")

    found = []
    for address in (url, arn):
        async with bench.shop(queue=address).by_hand() as consumer:
            async with bench.shop(queue=f"jobs{suffix}").app as sender:
                await sender.post(Job(address[:3]))
            [delivery] = await consumer.receive()
            await consumer.ack(delivery)
            found.append(delivery.message.body)

    assert found == [b'{"task":"htt"}', b'{"task":"arn"}']
