"""What the driver's side of a stream answers (R78)."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path

import pytest
import structlog.testing

from pump.errors import AccessDenied, ConfigurationError, ConnectionFailed, QueueNotFound
from pump.message import Message
from pump.spark.data.feed import Offset
from pump.subscription import MakeChannels, QueueSpec
from pump.testing.virtual_clock import VirtualClock

from .bench import (
    QUEUE,
    WatchedGateway,
    batch_ids,
    depth,
    in_time,
    make_old,
    open_feed,
    put,
    spooled_ids,
)

AWAY = ConnectionFailed("the broker", "nobody answers")


async def test_when_nothing_is_there_then_one_answer_takes_a_long_poll(
    gateway: WatchedGateway, clock: VirtualClock, folder: Path
) -> None:
    """R78: Spark asks again every few milliseconds; the broker is asked every few seconds."""
    await put(gateway, 0)
    feed = await open_feed(gateway, clock, folder, wait=timedelta(seconds=7))
    started_s = clock.now_s()

    start = feed.initial()
    assert await in_time(clock, feed.latest(start, 100)) == start

    assert clock.now_s() - started_s >= 7
    assert gateway.record.calls["receive"] == 1
    await feed.aclose()


async def test_when_more_is_there_than_a_batch_may_have_then_the_rest_is_not_received(
    gateway: WatchedGateway, clock: VirtualClock, folder: Path
) -> None:
    """R78: a batch is never larger than asked for, and what does not fit stays in the queue."""
    await put(gateway, 100)
    feed = await open_feed(gateway, clock, folder)

    start = feed.initial()
    end = await in_time(clock, feed.latest(start, 33))

    assert len(await batch_ids(folder, start, end)) == 33
    assert await depth(gateway) == 67
    await feed.aclose()


async def test_when_messages_trickle_in_then_they_share_a_batch(
    gateway: WatchedGateway, clock: VirtualClock, folder: Path
) -> None:
    """R78: a batch that has a message waits for company as long as `linger` says."""
    await put(gateway, 1)
    feed = await open_feed(gateway, clock, folder, linger=timedelta(seconds=5))
    start = feed.initial()

    answer = asyncio.create_task(feed.latest(start, 100))
    await clock.advance(2)
    await put(gateway, 1)
    end = await in_time(clock, answer)

    assert len(await batch_ids(folder, start, end)) == 2
    await feed.aclose()


async def test_when_the_broker_is_away_then_the_query_lives_on(
    gateway: WatchedGateway, clock: VirtualClock, folder: Path
) -> None:
    """R78: an outage is said, waited for, and over."""
    sent = await put(gateway, 3)
    feed = await open_feed(gateway, clock, folder)
    start = feed.initial()
    gateway.fail("receive", AWAY)

    with structlog.testing.capture_logs() as lines:
        assert await in_time(clock, feed.latest(start, 100)) == start
    gateway.heal("receive")
    end = await in_time(clock, feed.latest(start, 100))

    assert {line["event"] for line in lines} == {"receive.failed"}
    assert await batch_ids(folder, start, end) == sent
    await feed.aclose()


async def test_when_the_gateway_cannot_be_opened_for_a_while_then_the_query_lives_on(
    gateway: WatchedGateway, clock: VirtualClock, folder: Path
) -> None:
    """R78: connecting is a part of what may fail for a while."""
    sent = await put(gateway, 3)
    gateway.fail("open", AWAY, times=3)
    feed = await open_feed(gateway, clock, folder)

    start = feed.initial()
    end = await in_time(clock, feed.latest(start, 100))

    assert await batch_ids(folder, start, end) == sent
    await feed.aclose()


async def test_when_there_is_no_such_queue_then_the_query_fails_with_its_name(
    gateway: WatchedGateway, clock: VirtualClock, folder: Path
) -> None:
    """R78: waiting would not help."""
    feed = await open_feed(gateway, clock, folder)

    with pytest.raises(QueueNotFound, match=QUEUE):
        await in_time(clock, feed.latest(feed.initial(), 100))
    await feed.aclose()


async def test_when_acks_are_forbidden_then_the_query_fails_and_nothing_is_lost(
    gateway: WatchedGateway, clock: VirtualClock, folder: Path
) -> None:
    """R78: a queue that can never be emptied is for a person; the spool has what was received."""
    sent = await put(gateway, 5)
    feed = await open_feed(gateway, clock, folder)
    start = feed.initial()
    gateway.fail("settle", AccessDenied(QUEUE, "settle"))

    with pytest.raises(AccessDenied):
        await in_time(clock, feed.latest(start, 100))

    end = await in_time(clock, feed.latest(start, 100))
    assert await batch_ids(folder, start, end) == sent
    assert await depth(gateway) == 5
    await feed.aclose()


async def read_all(gateway: WatchedGateway, clock: VirtualClock, folder: Path) -> list[Offset]:
    """A query with `availableNow`, to its end."""
    feed = await open_feed(gateway, clock, folder)
    await in_time(clock, feed.prepare_drain())
    log = [feed.initial()]
    while (end := await in_time(clock, feed.latest(log[-1], 30))) != log[-1]:
        log.append(end)
    await feed.aclose()
    return log


async def test_when_it_is_to_read_what_is_there_then_it_drains_and_ends(
    gateway: WatchedGateway, clock: VirtualClock, folder: Path
) -> None:
    """R78: `availableNow` leaves an empty queue, in batches of the given size."""
    sent = await put(gateway, 100)

    log = await read_all(gateway, clock, folder)

    assert await batch_ids(folder, log[0], log[-1]) == sent
    assert len(log) >= 5
    assert await depth(gateway) == 0


async def test_when_senders_never_stop_then_it_ends_all_the_same(
    gateway: WatchedGateway, clock: VirtualClock, folder: Path
) -> None:
    """R78: `availableNow` reads what was there, not what comes as fast as it reads."""
    await put(gateway, 100)
    feed = await open_feed(gateway, clock, folder)
    await in_time(clock, feed.prepare_drain())
    log = [feed.initial()]

    while (end := await in_time(clock, feed.latest(log[-1], 30))) != log[-1]:
        log.append(end)
        await put(gateway, 30)
        assert len(log) < 100

    assert len(await batch_ids(folder, log[0], log[-1])) >= 100
    await feed.aclose()


async def test_when_the_broker_is_away_then_draining_is_not_taken_for_done(
    gateway: WatchedGateway, clock: VirtualClock, folder: Path
) -> None:
    """R78: a job that reads what is there must not end in success without it."""
    await put(gateway, 10)
    feed = await open_feed(gateway, clock, folder)
    await in_time(clock, feed.prepare_drain())
    gateway.fail("receive", AWAY)

    with pytest.raises(ConnectionFailed):
        await in_time(clock, feed.latest(feed.initial(), 30))
    await feed.aclose()


async def test_when_there_is_no_limit_then_one_batch_has_all(
    gateway: WatchedGateway, clock: VirtualClock, folder: Path
) -> None:
    """R78: Spark's `once` ignores the limit of the options."""
    sent = await put(gateway, 100)
    feed = await open_feed(gateway, clock, folder)

    start = feed.initial()
    end = await in_time(clock, feed.latest(start, None))

    assert await batch_ids(folder, start, end) == sent
    await feed.aclose()


async def test_when_another_query_has_the_spool_then_the_second_is_refused(
    gateway: WatchedGateway, clock: VirtualClock, folder: Path
) -> None:
    """R78: two writers would number their segments alike."""
    feed = await open_feed(gateway, clock, folder)

    with pytest.raises(ConfigurationError, match="another query writes to it"):
        await open_feed(gateway, clock, folder)

    await feed.aclose()
    await (await open_feed(gateway, clock, folder)).aclose()


async def test_when_the_checkpoint_belongs_to_another_spool_then_it_is_refused(
    gateway: WatchedGateway, clock: VirtualClock, folder: Path, tmp_path: Path
) -> None:
    """R78: numbers of one spool mean nothing in another."""
    first = await open_feed(gateway, clock, folder)
    other = await open_feed(gateway, clock, tmp_path / "other")

    with pytest.raises(ConfigurationError, match="the checkpoint belongs to another spool"):
        await other.latest(first.initial(), 10)
    with pytest.raises(ConfigurationError, match="the checkpoint belongs to another spool"):
        await first.latest({**first.initial(), "segment": 7}, 10)
    await first.aclose()
    await other.aclose()


async def test_when_spark_commits_then_only_old_segments_of_earlier_batches_go(
    gateway: WatchedGateway, clock: VirtualClock, folder: Path
) -> None:
    """R78: the batch that was committed stays, and so does what is younger than `retain`."""
    await put(gateway, 60)
    feed = await open_feed(gateway, clock, folder)
    log = [feed.initial()]
    while (end := await in_time(clock, feed.latest(log[-1], 20))) != log[-1]:
        log.append(end)

    for end in log[1:]:
        await feed.commit(end)
    # Written a moment ago by the disk's clock, which is ahead of the test's.
    assert len(await asyncio.to_thread(spooled_ids, folder)) == 60

    await asyncio.to_thread(make_old, folder)
    await feed.commit(log[-1])

    kept = await asyncio.to_thread(spooled_ids, folder)
    assert kept == await batch_ids(folder, feed.initial(), log[-1])
    assert 0 < len(kept) <= 20
    await feed.aclose()


async def test_when_messages_have_groups_then_a_group_keeps_its_order(
    gateway: WatchedGateway, clock: VirtualClock, folder: Path
) -> None:
    """R78: the rows of a group come in the order in which they were sent."""
    await gateway.open()
    await gateway.admin().ensure(QueueSpec(name=QUEUE), MakeChannels.CREATE)
    messages = [Message(id=f"{at % 3}-{at:03}", body=b"x", group=str(at % 3)) for at in range(90)]
    await gateway.producer(QUEUE).send(messages)

    log = await read_all(gateway, clock, folder)

    read = await batch_ids(folder, log[0], log[-1])
    for group in "012":
        of_group = [id_ for id_ in read if id_.startswith(group)]
        assert of_group == sorted(of_group)
        assert len(of_group) == 30
