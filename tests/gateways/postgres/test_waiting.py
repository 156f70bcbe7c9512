"""From where on a receive looks, and who is woken."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given, strategies as st

from gateways.postgres.waiting import (
    END,
    MARGIN_S,
    WHOLE_EVERY_S,
    Found,
    Kind,
    LowWater,
    QueueWaiters,
    Scan,
)
from pump.errors import ConnectionFailed
from pump.testing import VirtualClock

NOW_S = 100.0


def looked(low_water: LowWater, last_seq: int, **found: Any) -> None:
    end(low_water, low_water.begin(NOW_S), last_seq, **found)


def end(
    low_water: LowWater,
    scan: Scan,
    last_seq: int,
    *,
    again: int = 0,
    left: int | None = None,
    is_all: bool = False,
) -> None:
    found = Found(last_seq=last_seq, last_again=again, first_left=left, is_all=is_all)
    low_water.end(scan, found, server_s=1_000.0, now_s=NOW_S, hears=True)


def test_when_nothing_is_known_then_everything_is_looked_at() -> None:
    scan = LowWater().begin(NOW_S)

    assert (scan.from_seq, scan.again_seq, scan.since_s) == (0, 0, None)


def test_when_some_were_found_then_the_next_look_begins_behind_them() -> None:
    low_water = LowWater()
    looked(low_water, 7)

    scan = low_water.begin(NOW_S)

    assert (scan.from_seq, scan.since_s) == (8, 1_000.0 - MARGIN_S)


def test_when_nothing_is_left_then_the_next_look_steps_over_nothing() -> None:
    low_water = LowWater()
    looked(low_water, 7, is_all=True)

    assert low_water.begin(NOW_S).from_seq == END


def test_when_one_is_committed_late_then_the_mark_is_as_low() -> None:
    low_water = LowWater()
    looked(low_water, 7, is_all=True)

    low_water.told(5)

    assert low_water.begin(NOW_S).from_seq == 5


def test_when_it_is_told_of_during_a_look_then_the_mark_is_as_low_all_the_same() -> None:
    low_water = LowWater()
    looked(low_water, 0)
    scan = low_water.begin(NOW_S)

    low_water.told(5)
    end(low_water, scan, 9, is_all=True)

    assert low_water.begin(NOW_S).from_seq == 5


def test_when_a_look_failed_then_everything_is_looked_at() -> None:
    low_water = LowWater()
    looked(low_water, 7)

    low_water.failed(low_water.begin(NOW_S))

    assert low_water.begin(NOW_S).from_seq == 0


def test_when_a_second_has_passed_then_everything_is_looked_at_again() -> None:
    low_water = LowWater()
    looked(low_water, 7)

    assert low_water.begin(NOW_S + WHOLE_EVERY_S).from_seq == 0


def test_when_looking_at_everything_takes_long_then_it_is_done_seldom() -> None:
    low_water = LowWater()
    scan = low_water.begin(NOW_S - 2.0)
    end(low_water, scan, 7)

    assert low_water.begin(NOW_S + 10.0).from_seq == 8
    assert low_water.begin(NOW_S + 18.0).from_seq == 0


def test_when_one_comes_back_then_only_the_mark_of_those_is_as_low() -> None:
    low_water = LowWater()
    looked(low_water, 7, again=4)
    assert low_water.begin(NOW_S).again_seq == 5

    low_water.told_again(2)

    scan = low_water.begin(NOW_S)
    assert (scan.from_seq, scan.again_seq) == (8, 2)


def test_when_a_look_leaves_one_then_it_is_found_though_another_look_has_come_further() -> None:
    low_water = LowWater()
    looked(low_water, 0)
    first = low_water.begin(NOW_S)
    looked(low_water, 9, again=6, is_all=True)

    end(low_water, first, 0, again=2, left=3)

    scan = low_water.begin(NOW_S)
    assert (scan.from_seq, scan.again_seq) == (3, 3)


@given(st.data())
def test_whatever_the_order_of_commits_and_answers_no_message_is_below_the_mark(
    data: st.DataObject,
) -> None:
    """A queue, receives that overlap, and notifications that come after their commit."""
    low_water = LowWater()
    there: set[int] = set()
    unheard: list[int] = []
    scans: list[tuple[Scan, int, bool]] = []
    seqs = list(range(1, 21))
    for _ in range(data.draw(st.integers(1, 60))):
        match data.draw(st.sampled_from(["commit", "hear", "look", "answer"])):
            case "commit" if seqs:
                seq = seqs.pop(data.draw(st.integers(0, len(seqs) - 1)))
                there.add(seq)
                unheard.append(seq)
            case "hear" if unheard:
                low_water.told(unheard.pop(0))
            case "look":
                scan = low_water.begin(NOW_S)
                found = sorted(seq for seq in there if seq >= scan.from_seq)
                taken = found[:2]
                there.difference_update(taken)
                scans.append((scan, max(taken, default=0), len(found) < 2))
            case "answer" if scans:
                scan, last_seq, is_all = scans.pop(data.draw(st.integers(0, len(scans) - 1)))
                end(low_water, scan, last_seq, is_all=is_all)
    for scan, last_seq, is_all in scans:
        end(low_water, scan, last_seq, is_all=is_all)
    for seq in unheard:
        low_water.told(seq)

    assert all(seq >= low_water.begin(NOW_S).from_seq for seq in there)


@pytest.fixture
async def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
async def waiters(clock: VirtualClock) -> QueueWaiters:
    return QueueWaiters(clock, poll_s=lambda: 5.0)


def waiting(waiters: QueueWaiters, kind: Kind, wait_s: float = 60.0) -> asyncio.Task[bool]:
    return asyncio.create_task(waiters.wait(kind, wait_s))


@pytest.mark.asyncio
class TestQueueWaiters:
    async def test_when_something_is_told_then_one_looks_for_messages_and_all_for_their_own(
        self, clock: VirtualClock, waiters: QueueWaiters
    ) -> None:
        some = [waiting(waiters, kind) for kind in Kind for _ in range(3)]
        await clock.settle()

        waiters.told("17")
        await clock.settle()

        assert [task.done() for task in some] == [True, *[False] * 2] * 2 + [True] * 3
        waiters.close()
        await asyncio.gather(*some)

    async def test_when_nothing_is_told_then_one_looks_now_and_then(
        self, clock: VirtualClock, waiters: QueueWaiters
    ) -> None:
        many = [waiting(waiters, Kind.MESSAGE, 600.0) for _ in range(100)]
        await clock.settle()

        await clock.advance(60.0)

        assert 9 <= sum(task.done() for task in many) <= 12
        waiters.close()
        await asyncio.gather(*many)

    async def test_when_something_will_be_due_then_one_looks_at_that_moment(
        self, clock: VirtualClock, waiters: QueueWaiters
    ) -> None:
        one = waiting(waiters, Kind.MESSAGE)
        await clock.settle()

        waiters.told("+2.5")
        await clock.advance(2.4)
        was_done = one.done()
        await clock.advance(0.2)

        assert not was_done
        assert await one

    async def test_when_the_one_that_was_woken_is_cancelled_then_another_looks(
        self, clock: VirtualClock, waiters: QueueWaiters
    ) -> None:
        first, second = waiting(waiters, Kind.MESSAGE), waiting(waiters, Kind.MESSAGE)
        await clock.settle()

        waiters.told("-")
        first.cancel()
        await clock.settle()

        assert second.done()

    async def test_when_the_connection_is_lost_then_all_are_told(
        self, clock: VirtualClock, waiters: QueueWaiters
    ) -> None:
        some = [waiting(waiters, kind) for kind in Kind]
        await clock.settle()

        waiters.fail(ConnectionFailed("db", "gone"))

        for each in some:
            with pytest.raises(ConnectionFailed):
                await each
        waiters.close()
