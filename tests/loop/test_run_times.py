"""Run times: what handlers took, in little room and little time."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, strategies as st

from pump.findings import HandlerTimes
from pump.loop.processing import DeliveryResult
from pump.loop.reporting import PumpStats, RunTimes
from pump.outcome import ABANDON, ACK, Defer
from pump.testing.builders import a_delivery

DELIVERY = a_delivery()
BUCKET = 1.02
"""How much longer the end of a bucket is than its beginning."""
SHORT_S = 0.001
"""Runs up to this share the bucket that it is in."""


def results(*runs_s: float) -> list[DeliveryResult]:
    return [DeliveryResult(DELIVERY, ACK, ACK, run_s) for run_s in runs_s]


def summary_of(*runs_s: float) -> HandlerTimes:
    times = RunTimes()
    times.observe(results(*runs_s))
    return times.summary(lost_count=0, now_s=5.0)


def test_when_nothing_was_handled_then_everything_is_zero() -> None:
    assert summary_of() == HandlerTimes(
        count=0, mean_s=0.0, p50_s=0.0, p99_s=0.0, max_s=0.0, observed_at_s=5.0
    )


def test_when_one_was_handled_then_every_figure_is_its_time() -> None:
    times = summary_of(0.4)

    assert (times.count, times.mean_s, times.p50_s, times.p99_s, times.max_s) == (1, *[0.4] * 4)


def test_when_one_in_a_thousand_is_slow_then_only_the_maximum_says_so() -> None:
    times = summary_of(*[0.1] * 999, 60.0)

    assert times.p99_s <= 0.1 * BUCKET
    assert times.max_s == 60.0


def test_when_one_in_fifty_is_slow_then_p99_says_so() -> None:
    times = summary_of(*[0.1] * 98, 60.0, 60.0)

    assert times.p50_s <= 0.1 * BUCKET
    assert times.p99_s == 60.0


def test_when_a_handler_ran_for_days_then_it_is_counted_too() -> None:
    times = summary_of(300_000.0)

    assert (times.count, times.p99_s) == (1, 300_000.0)


def test_when_nobody_finished_a_message_then_it_is_not_counted() -> None:
    """Handed back untried, or its handler told to stop: how long it takes is not known."""
    times = RunTimes()

    times.observe(
        [DeliveryResult(DELIVERY, ABANDON, ABANDON), DeliveryResult(DELIVERY, Defer(), Defer())]
    )

    assert times.summary(lost_count=2, now_s=5.0).count == 0


def test_when_leases_were_lost_then_they_are_told_beside_the_times() -> None:
    assert RunTimes().summary(lost_count=2, now_s=5.0).lost_count == 2


def test_when_two_pumps_count_then_each_counts_for_itself() -> None:
    one, other = PumpStats(), PumpStats()

    one.run_times.observe(results(1.0))

    assert other.run_times.summary(lost_count=0, now_s=5.0).count == 0


@given(st.lists(st.floats(min_value=1e-9, max_value=100_000.0), min_size=1), st.integers(1, 7))
def test_whatever_was_observed_percentiles_err_upwards_and_by_a_bucket_at_most(
    runs_s: list[float], batch: int
) -> None:
    times = RunTimes()
    for start in range(0, len(runs_s), batch):
        times.observe(results(*runs_s[start : start + batch]))
    found = times.summary(lost_count=0, now_s=5.0)

    ordered = sorted(runs_s)
    assert (found.count, found.max_s) == (len(runs_s), ordered[-1])
    assert found.mean_s == pytest.approx(math.fsum(runs_s) / len(runs_s))
    for share, told_s in ((0.50, found.p50_s), (0.99, found.p99_s)):
        exact_s = ordered[math.ceil(share * len(runs_s)) - 1]
        assert exact_s <= told_s <= max(SHORT_S, exact_s) * BUCKET * (1 + 1e-9)
