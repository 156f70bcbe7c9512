"""The reader of a stream dies between any two of its steps, and is started again (R78)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import pytest

from pump.errors import ConnectionFailed
from pump.spark.data.feed import Feed, Offset
from pump.testing.virtual_clock import VirtualClock

from .bench import (
    QUEUE,
    Died,
    MortalSpool,
    WatchedGateway,
    batch_ids,
    depth,
    in_time,
    make_old,
    open_feed,
    put,
)

LIMIT = 15
STEPS = [
    ("before", "write"),
    ("after", "write"),
    ("before", "publish"),
    ("after", "publish"),
    ("before", "note"),
    ("after", "note"),
]


async def read_on(feed: Feed, clock: VirtualClock, log: list[Offset]) -> None:
    """What Spark does: ask for the end of the next batch, log it, and commit it afterwards."""
    while (end := await in_time(clock, feed.latest(log[-1], LIMIT))) != log[-1]:
        log.append(end)
        await feed.commit(end)


async def restarted(gateway: WatchedGateway, clock: VirtualClock, folder: Path) -> Feed:
    """A new process, after the leases of the dead one have run out."""
    await clock.advance(61)
    return await open_feed(gateway, clock, folder)


async def batches(folder: Path, log: Sequence[Offset]) -> list[list[str]]:
    """What Spark reads for each pair of offsets that it has logged."""
    return [await batch_ids(folder, *pair) for pair in pairwise(log)]


async def read(folder: Path, log: Sequence[Offset]) -> list[str]:
    return [id_ for batch in await batches(folder, log) for id_ in batch]


@pytest.mark.parametrize(("when", "step"), STEPS)
@pytest.mark.parametrize("in_batch", [1, 2])
async def test_when_it_dies_at_a_step_then_every_message_is_read_once(
    gateway: WatchedGateway,
    clock: VirtualClock,
    folder: Path,
    when: str,
    step: str,
    in_batch: int,
) -> None:
    """R78: nothing is lost, nothing is acked that is not spooled, nothing is read twice where
    the broker's ids tell.
    """
    sent = await put(gateway, 40)
    spool = MortalSpool(folder, QUEUE)
    feed = await open_feed(gateway, clock, folder, spool)
    log = [feed.initial()]
    if in_batch == 2:
        log.append(await in_time(clock, feed.latest(log[-1], LIMIT)))
    spool.dies = (when, step)
    with pytest.raises(Died):
        await in_time(clock, feed.latest(log[-1], LIMIT))
    spool.close()

    again = await restarted(gateway, clock, folder)
    await read_everything(again, clock, log)

    assert sorted(await read(folder, log)) == sorted(sent)
    assert gateway.unspooled == []
    assert await depth(gateway) == 0
    await again.aclose()


async def read_everything(feed: Feed, clock: VirtualClock, log: list[Offset]) -> None:
    while (end := await in_time(clock, feed.latest(log[-1], LIMIT))) != log[-1]:
        log.append(end)


async def test_when_it_dies_before_it_receives_then_nothing_has_happened(
    gateway: WatchedGateway, clock: VirtualClock, folder: Path
) -> None:
    """R78: a question that was never answered leaves no trace."""
    sent = await put(gateway, 5)
    spool = MortalSpool(folder, QUEUE)
    feed = await open_feed(gateway, clock, folder, spool)
    log = [feed.initial()]
    gateway.fail("receive", Died(), times=1)
    with pytest.raises(Died):
        await in_time(clock, feed.latest(log[-1], LIMIT))
    spool.close()

    again = await restarted(gateway, clock, folder)
    await read_everything(again, clock, log)

    assert await read(folder, log) == sent
    await again.aclose()


async def test_when_the_answer_is_never_logged_then_its_segments_are_read_by_the_next(
    gateway: WatchedGateway, clock: VirtualClock, folder: Path
) -> None:
    """R78: messages that are acked wait in the spool for whoever asks next."""
    sent = await put(gateway, 12)
    spool = MortalSpool(folder, QUEUE)
    feed = await open_feed(gateway, clock, folder, spool)
    log = [feed.initial()]
    await in_time(clock, feed.latest(log[-1], LIMIT))
    assert await depth(gateway) == 0
    spool.close()

    again = await restarted(gateway, clock, folder)
    assert again.initial() == log[0]
    await read_everything(again, clock, log)

    assert await read(folder, log) == sent
    await again.aclose()


async def test_when_it_is_started_again_then_logged_batches_are_the_same(
    gateway: WatchedGateway, clock: VirtualClock, folder: Path
) -> None:
    """R78: what two offsets stand for never changes, whatever arrives meanwhile."""
    await put(gateway, 40)
    spool = MortalSpool(folder, QUEUE)
    feed = await open_feed(gateway, clock, folder, spool)
    log = [feed.initial()]
    await read_everything(feed, clock, log)
    before = await batches(folder, log)
    spool.close()

    await put(gateway, 40)
    again = await restarted(gateway, clock, folder)
    await in_time(clock, again.latest(log[-1], LIMIT))

    assert await batches(folder, log) == before
    await again.aclose()


async def test_when_it_dies_after_a_commit_then_the_batch_that_was_not_committed_is_there(
    gateway: WatchedGateway, clock: VirtualClock, folder: Path
) -> None:
    """R78: a commit removes only what came before the batch it names."""
    await put(gateway, 40)
    spool = MortalSpool(folder, QUEUE)
    feed = await open_feed(gateway, clock, folder, spool)
    log = [feed.initial()]
    await read_everything(feed, clock, log)
    assert len(log) > 3
    last = await batch_ids(folder, log[-2], log[-1])
    await asyncio.to_thread(make_old, folder)
    for end in log[1:-1]:
        await feed.commit(end)
    spool.close()

    again = await restarted(gateway, clock, folder)

    assert await batch_ids(folder, log[-2], log[-1]) == last
    # Of the committed batches, the last one is there as well.
    assert again.initial() == log[-3]
    await again.aclose()


async def test_when_the_ack_is_lost_then_the_message_that_comes_again_is_not_spooled_again(
    gateway: WatchedGateway, clock: VirtualClock, folder: Path
) -> None:
    """R78: a broker that did not hear the ack is told again, and Spark sees one row."""
    sent = await put(gateway, 8)
    feed = await open_feed(gateway, clock, folder)
    log = [feed.initial()]
    gateway.fail("settle", ConnectionFailed("the broker", "nobody answers"))
    await read_on(feed, clock, log)
    assert await depth(gateway) == 8
    gateway.heal("settle")

    await clock.advance(61)
    await read_everything(feed, clock, log)

    assert await read(folder, log) == sent
    assert await depth(gateway) == 0
    assert gateway.unspooled == []
    await feed.aclose()


async def test_when_the_queue_was_made_anew_then_its_messages_are_not_taken_for_those_before(
    gateway: WatchedGateway, clock: VirtualClock, folder: Path
) -> None:
    """R78: a broker that starts to count again must not have a message acked that nobody read."""
    before = await put(gateway, 3)
    feed = await open_feed(gateway, clock, folder)
    log = [feed.initial()]
    gateway.fail("settle", ConnectionFailed("the broker", "nobody answers"))
    await read_everything(feed, clock, log)
    await feed.aclose()

    anew = WatchedGateway(clock, folder)
    sent = await put(anew, 5)
    again = await open_feed(anew, clock, folder)
    await read_everything(again, clock, log)

    assert await read(folder, log) == [*before, *sent]
    assert anew.unspooled == []
    await again.aclose()
