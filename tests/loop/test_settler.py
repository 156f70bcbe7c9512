"""Settler: each settlement is reported once, and never sent after its lease (laws 1 and 3)."""

from __future__ import annotations

import asyncio
from collections import Counter
from itertools import pairwise

import attrs
import pytest
from hypothesis import given, settings, strategies as st

from pump.message import Delivery
from pump.testing.virtual_clock import START_S

from .settler_bench import TIMEOUT_S, Answer, Bench


@attrs.frozen
class Submit:
    count: int


@attrs.frozen
class Wait:
    seconds: float


@attrs.frozen
class Become:
    answer: Answer


@attrs.frozen
class LoseLease:
    position: int


Step = Submit | Wait | Become | LoseLease
STEPS = st.lists(
    st.one_of(
        st.builds(Submit, st.integers(1, 8)),
        st.builds(Wait, st.sampled_from([0.0, 0.004, 0.1, 1.0, 40.0])),
        st.builds(
            Become,
            st.sampled_from(
                [
                    "accept",
                    "refuse for now",
                    "refuse for good",
                    "refuse every other",
                    "fail",
                    "hang",
                ]
            ),
        ),
        st.builds(LoseLease, st.integers(0, 30)),
    ),
    max_size=15,
)


@given(
    STEPS,
    st.integers(1, 5),
    st.sampled_from([0.0, 0.005]),
    st.integers(1, 3),
    st.sampled_from([0.0, 0.9]),
)
def test_when_the_broker_misbehaves_then_each_settlement_is_still_reported_exactly_once(
    steps: list[Step], batch: int, linger_s: float, max_calls: int, chance: float
) -> None:
    """Law 1; law 3: nothing is sent for a lease that is gone."""

    async def scenario() -> None:
        bench = Bench(batch=batch, linger_s=linger_s, max_calls=max_calls, chance=chance)
        dropped: set[Delivery] = set()

        for step in steps:
            match step:
                case Submit(count):
                    bench.submit(count)
                case Wait(seconds):
                    await bench.clock.advance(seconds)
                case Become(answer):
                    bench.broker.answer = answer
                case LoseLease(position) if bench.submitted:
                    lost = bench.submitted[position % len(bench.submitted)]
                    bench.broker.held.discard(lost)
                    dropped.add(lost)
            unreported = len(bench.submitted) - len(bench.settled) - len(bench.lost)
            # A lost one counts until the call its batch went into has ended.
            assert unreported <= bench.settler.unsettled_count <= len(bench.submitted)
        bench.broker.answer = "accept"
        flushing = asyncio.create_task(bench.settler.flush())
        await bench.clock.advance(TIMEOUT_S + 31)

        assert flushing.done(), "flush did not return"
        reported = Counter([*bench.settled, *bench.lost])
        assert reported == Counter(dict.fromkeys(bench.submitted, 1))
        assert all(bench.broker.confirmed[each] == 1 for each in bench.settled)
        assert set(bench.lost) <= dropped | bench.broker.refused
        assert bench.broker.asked_without_lease == 0
        assert all(0 < len(each) <= batch for each in bench.broker.batches)
        assert bench.broker.most_calls <= max_calls
        assert bench.settler.unsettled_count == 0
        assert not any(bench.settler.has(each) for each in bench.submitted)
        await bench.stop()

    asyncio.run(scenario())


@given(st.integers(1, 20), st.integers(1, 6))
@settings(max_examples=30)
def test_when_flushing_then_it_returns_only_when_everything_is_reported(
    count: int, batch: int
) -> None:
    async def scenario() -> None:
        bench = Bench(batch=batch, linger_s=5.0)
        bench.broker.answer = "fail"
        bench.submit(count)
        flushing = asyncio.create_task(bench.settler.flush())
        await bench.clock.advance(1)

        assert not flushing.done()
        bench.broker.answer = "accept"
        while not flushing.done():
            assert len(bench.settled) < count
            assert await bench.clock.advance_to_next()
        assert len(bench.settled) == count
        await bench.stop()

    asyncio.run(scenario())


async def test_when_one_more_is_submitted_at_the_last_moment_then_flush_waits_for_it() -> None:
    bench = Bench()
    bench.submit()
    bench.broker.at_the_end = bench.submit

    await bench.settler.flush()

    assert len(bench.settled) == 2
    await bench.stop()


async def test_when_nothing_was_submitted_then_flush_returns_at_once() -> None:
    bench = Bench()

    await bench.settler.flush()

    assert bench.broker.batches == []
    await bench.stop()


async def test_when_settlements_trickle_in_then_they_linger_for_company() -> None:
    bench = Bench(batch=3, linger_s=0.005)

    bench.submit()
    await bench.clock.advance(0.004)
    bench.submit()
    await bench.clock.settle()
    assert bench.broker.batches == []
    await bench.clock.advance(0.001)

    assert [len(each) for each in bench.broker.batches] == [2]
    await bench.stop()


async def test_when_nothing_in_hand_could_join_then_it_does_not_linger() -> None:
    bench = Bench(batch=3, linger_s=60)
    bench.in_flight = 2

    first, second = bench.submit(2)
    await bench.clock.settle()

    assert bench.settled == [first, second]
    await bench.stop()


async def test_when_the_last_one_in_hand_joins_then_it_lingers_no_longer() -> None:
    bench = Bench(batch=3, linger_s=60)
    bench.in_flight = 2

    [first] = bench.submit()
    await bench.clock.settle()
    before = list(bench.settled)
    [second] = bench.submit()
    await bench.clock.settle()

    assert (before, bench.settled) == ([], [first, second])
    await bench.stop()


async def test_when_a_batch_is_full_then_it_does_not_linger() -> None:
    bench = Bench(batch=3, linger_s=60)

    bench.submit(2)
    await bench.clock.settle()
    bench.submit(1)
    await bench.clock.settle()

    assert [len(each) for each in bench.broker.batches] == [3]
    assert len(bench.settled) == 3
    await bench.stop()


async def test_when_flushing_then_nobody_lingers() -> None:
    bench = Bench(batch=3, linger_s=60)
    bench.submit()
    await bench.clock.settle()

    await bench.settler.flush()
    bench.submit()
    await bench.clock.settle()

    assert len(bench.settled) == 2
    assert bench.broker.moments == [0, 0]
    await bench.stop()


async def test_when_several_calls_help_then_a_slow_one_does_not_hold_up_the_others() -> None:
    bench = Bench(batch=1, max_calls=2)
    bench.broker.answer = "hang"
    [stuck] = bench.submit()
    await bench.clock.settle()
    bench.broker.answer = "accept"

    bench.submit(3)
    await bench.clock.settle()

    assert len(bench.settled) == 3
    assert bench.settler.has(stuck)
    await bench.clock.advance(TIMEOUT_S + 1)
    assert stuck in bench.settled
    await bench.stop()


async def test_when_one_call_at_a_time_is_best_then_there_is_never_a_second() -> None:
    bench = Bench(batch=1, max_calls=1)

    bench.submit(5)
    await bench.clock.settle()

    assert bench.broker.most_calls == 1
    assert len(bench.settled) == 5
    await bench.stop()


async def test_when_a_reply_never_comes_then_the_call_is_made_again() -> None:
    bench = Bench()
    bench.broker.answer = "hang"
    [delivery] = bench.submit()
    await bench.clock.advance(TIMEOUT_S - 1)
    bench.broker.answer = "accept"
    assert bench.settled == []

    await bench.clock.advance(2)

    assert bench.settled == [delivery]
    assert bench.broker.moments == [0, pytest.approx(30.1)]
    await bench.stop()


@pytest.mark.parametrize("answer", ["fail", "refuse for now"])
async def test_when_the_broker_keeps_refusing_then_the_pauses_grow(answer: Answer) -> None:
    """R52."""
    bench = Bench()
    bench.broker.answer = answer
    bench.submit(10)

    await bench.clock.advance(3.2)

    # 100 ms, 200 ms, 400 ms …: one step a call, however many settlements were refused.
    assert bench.broker.moments == pytest.approx([0, 0.1, 0.3, 0.7, 1.5, 3.1])
    await bench.stop()


async def test_when_the_broker_is_away_for_long_then_the_pauses_stay_short_against_a_lease() -> (
    None
):
    bench = Bench()
    bench.broker.answer = "fail"
    bench.submit()

    await bench.clock.advance(120)

    gaps_s = [b - a for a, b in pairwise(bench.broker.moments)]
    assert max(gaps_s) == pytest.approx(TIMEOUT_S / 8)
    await bench.stop()


async def test_when_the_broker_answers_again_then_the_pauses_start_anew() -> None:
    bench = Bench()
    bench.broker.answer = "fail"
    bench.submit()
    await bench.clock.advance(3.2)
    bench.broker.answer = "accept"
    await bench.clock.advance(10)
    bench.broker.answer, bench.broker.moments = "fail", []

    start_s = bench.clock.now_s() - START_S
    bench.submit()
    await bench.clock.advance(0.15)

    assert bench.broker.moments == pytest.approx([start_s, start_s + 0.1])
    await bench.stop()


async def test_when_a_lease_ends_while_the_broker_is_away_then_the_settlement_is_lost() -> None:
    bench = Bench()
    bench.broker.answer = "fail"
    [lost, kept] = bench.submit(2)
    await bench.clock.settle()
    bench.broker.held.discard(lost)
    bench.broker.answer = "accept"

    await bench.clock.advance(1)

    assert (bench.lost, bench.settled) == ([lost], [kept])
    assert bench.broker.batches == [[lost, kept], [kept]]
    await bench.stop()


async def test_when_part_of_a_batch_is_refused_for_good_then_only_that_part_is_lost() -> None:
    bench = Bench()
    bench.broker.answer = "refuse every other"

    first, second, third = bench.submit(3)
    await bench.clock.settle()

    assert (bench.settled, bench.lost) == ([first, third], [second])
    await bench.stop()
