"""Prefetch: a larger hand while workers run dry, a smaller one while messages wait in it."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from pump.loop.receiving import Prefetch

LEAST = 10


def a_prefetch(size: int = 10, most: int = 100) -> Prefetch:
    return Prefetch(size, most=most)


def receive(prefetch: Prefetch, now_s: float, *, count: int = 10, waiting: int = 0) -> None:
    prefetch.received(count, asked=10, waiting=waiting, now_s=now_s, least=LEAST)


@pytest.mark.parametrize(("size", "expected"), [(10, 20), (60, 100), (100, 100), (3, 10)])
def test_when_workers_run_dry_after_a_full_receive_then_it_doubles_up_to_the_most(
    size: int, expected: int
) -> None:
    prefetch = a_prefetch(size)
    receive(prefetch, 0.0)

    prefetch.ran_dry(least=LEAST)

    assert prefetch.size == expected


def test_when_many_workers_run_dry_then_it_grows_once_for_a_full_receive() -> None:
    prefetch = a_prefetch()
    receive(prefetch, 0.0)

    for _ in range(5):
        prefetch.ran_dry(least=LEAST)

    assert prefetch.size == 20


def test_when_the_queue_gave_less_than_was_asked_for_then_running_dry_says_nothing() -> None:
    prefetch = a_prefetch()
    receive(prefetch, 0.0)
    receive(prefetch, 0.1, count=9)

    prefetch.ran_dry(least=LEAST)

    assert prefetch.size == 10


@pytest.mark.parametrize(("size", "expected"), [(80, 40), (15, 10), (10, 10)])
def test_when_a_full_receive_still_waits_after_a_while_then_it_halves_down_to_the_least(
    size: int, expected: int
) -> None:
    prefetch = a_prefetch(size)
    receive(prefetch, 0.0)

    receive(prefetch, 0.3, waiting=1)

    assert prefetch.size == expected


def test_when_it_has_halved_then_the_next_while_counts_anew() -> None:
    prefetch = a_prefetch(80)
    receive(prefetch, 0.0)
    receive(prefetch, 0.3, waiting=10)

    receive(prefetch, 0.4, waiting=20)
    assert prefetch.size == 40
    receive(prefetch, 0.6, waiting=30)

    assert prefetch.size == 20


def test_when_what_came_was_started_then_it_stays_however_long_the_next_took() -> None:
    prefetch = a_prefetch(80)
    receive(prefetch, 0.0)

    receive(prefetch, 60.0, waiting=0)

    assert prefetch.size == 80


def test_when_later_ones_wait_then_those_before_them_are_not_blamed() -> None:
    prefetch = a_prefetch(80)
    receive(prefetch, 0.0)
    receive(prefetch, 0.1, waiting=5)

    # Ten of the twenty are started: the first ten.
    receive(prefetch, 0.5, waiting=10)

    assert prefetch.size == 80


@given(
    st.integers(1, 1_000),
    st.integers(1, 1_000),
    st.integers(1, 1_000),
    st.lists(st.one_of(st.none(), st.tuples(st.integers(0, 10), st.floats(0, 1e6)))),
)
def test_when_it_adapts_then_it_is_never_less_than_what_runs_at_once(
    size: int, least: int, most: int, history: list[tuple[int, float] | None]
) -> None:
    prefetch = Prefetch(size, most=most)
    now_s = 0.0
    for event in history:
        if event is None:
            prefetch.ran_dry(least=least)
        else:
            now_s += event[1]
            prefetch.received(event[0], asked=10, waiting=0, now_s=now_s, least=least)

        assert min(least, size) <= prefetch.size <= max(least, most, size)
