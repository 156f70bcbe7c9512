"""Server time: its bounds hold for any clock within the drift, converge, and start anew."""

from __future__ import annotations

from random import Random

import attrs
import pytest
from hypothesis import given, settings, strategies as st

from gateways.s3.store.objects import DRIFT, RESOLUTION_S, ServerTime

ROUNDING_S = 1e-6
"""Of floats: dates are large numbers."""


@attrs.define
class Machine:
    """A local clock beside the store's: `rate` local seconds pass in a second of the store."""

    rate: float = 1.0
    lead_s: float = 1_700_000_000.0
    """By how much the store is ahead at local zero."""
    true_s: float = 0.0
    """Seconds of the store since the beginning."""
    stood_s: float = 0.0

    def local_s(self) -> float:
        return (self.true_s - self.stood_s) * self.rate

    @property
    def store_s(self) -> float:
        return self.lead_s + self.true_s

    def ask(self, time: ServerTime, there_s: float, back_s: float) -> None:
        """One request and its reply."""
        sent_s = self.local_s()
        self.true_s += there_s
        date_s = float(int(self.store_s))
        self.true_s += back_s
        time.observe(date_s, sent_s=sent_s, received_s=self.local_s())

    def is_within(self, time: ServerTime) -> bool:
        earliest_s, latest_s = time.earliest_s(), time.latest_s()
        return earliest_s - ROUNDING_S <= self.store_s <= latest_s + ROUNDING_S


pauses = st.floats(0.0, 400.0)
trips = st.floats(0.0, 3.0)
rates = st.floats(1 / (1 + DRIFT) + 1e-9, 1 / (1 - DRIFT) - 1e-9)


def test_when_nothing_has_been_heard_then_nothing_is_known() -> None:
    """T8: nothing is judged by a clock that the store has not told."""
    time = ServerTime(lambda: 5.0)

    assert not time.is_known
    assert time.earliest_s() == float("-inf")
    assert time.latest_s() == time.end_s(1.0) == float("inf")


@settings(deadline=None)
@given(rate=rates, start_s=st.floats(0, 10), talks=st.lists(st.tuples(pauses, trips, trips)))
def test_when_the_clock_drifts_then_the_bounds_always_hold(
    rate: float, start_s: float, talks: list[tuple[float, float, float]]
) -> None:
    """T8: whatever the latency and the drift, the store's time is between the bounds."""
    machine = Machine(rate=rate, true_s=start_s)
    time = ServerTime(machine.local_s)
    machine.ask(time, 0.1, 0.1)

    for pause_s, there_s, back_s in talks:
        machine.true_s += pause_s
        assert machine.is_within(time)
        machine.ask(time, there_s, back_s)
        assert machine.is_within(time)


@settings(deadline=None)
@given(rate=rates, start_s=st.floats(0, 10), seed=st.integers(0, 2**32))
def test_when_replies_overlap_and_are_told_out_of_order_then_the_bounds_hold(
    rate: float, start_s: float, seed: int
) -> None:
    """T8: requests under way at once, whose replies are observed in any order."""
    rng = Random(seed)
    machine = Machine(rate=rate, true_s=start_s)
    time = ServerTime(machine.local_s)
    told = []
    for _ in range(8):
        sent_s = machine.local_s()
        machine.true_s += rng.uniform(0, 2)
        date_s = float(int(machine.store_s))
        machine.true_s += rng.uniform(0, 60)
        told.append((date_s, sent_s, machine.local_s()))

    rng.shuffle(told)

    for date_s, sent_s, received_s in told:
        time.observe(date_s, sent_s=sent_s, received_s=received_s)
        assert machine.is_within(time)


@settings(deadline=None)
@given(rate=rates, asks=st.floats(0, 1), judges=st.floats(0, 1), lease_s=st.floats(0.5, 3600))
def test_when_a_lease_is_judged_over_then_its_owner_s_clock_has_counted_it(
    rate: float, asks: float, judges: float, lease_s: float
) -> None:
    """T8: an owner with the slowest clock has let go before the quickest judge takes over."""
    owner, judge = Machine(rate=rate, true_s=asks), Machine(rate=1 / (1 - DRIFT), true_s=asks)
    owners, judges_time = ServerTime(owner.local_s), ServerTime(judge.local_s)
    owner.ask(owners, 0.0, 0.0)
    judge.ask(judges_time, judges, 0.0)
    judge.ask(judges_time, 1 - judges, 0.0)

    expires_s, deadline_s = owners.end_s(lease_s), owner.local_s() + lease_s
    while judges_time.earliest_s() < expires_s:
        judge.true_s += max(0.001, (expires_s - judges_time.earliest_s()) / 2)
    owner.true_s = judge.true_s

    assert owner.local_s() >= deadline_s - ROUNDING_S


@pytest.mark.parametrize("seed", range(20))
def test_when_replies_come_at_all_times_of_a_second_then_the_bounds_close_to_the_latency(
    seed: int,
) -> None:
    """T8: a hundred replies tell the time far better than the whole seconds of each."""
    rng = Random(seed)
    machine = Machine(rate=1 + rng.uniform(-0.5, 0.5) * DRIFT, true_s=rng.uniform(0, 10))
    time = ServerTime(machine.local_s)

    for _ in range(100):
        machine.true_s += rng.uniform(0, 0.5)
        machine.ask(time, 0.03, 0.03)

    assert time.latest_s() - time.earliest_s() < 0.25 * RESOLUTION_S
    assert machine.is_within(time)


@settings(deadline=None)
@given(jump_s=st.floats(-5000, 5000).filter(lambda s: abs(s) > 2.5), rest_s=pauses)
def test_when_the_store_s_clock_is_set_then_the_next_reply_counts_alone(
    jump_s: float, rest_s: float
) -> None:
    """T8: bounds that a reply contradicts are void, not bounds for ever."""
    machine = Machine()
    time = ServerTime(machine.local_s)
    machine.ask(time, 0.1, 0.1)
    machine.true_s += rest_s

    machine.lead_s += jump_s
    machine.ask(time, 0.1, 0.1)

    assert machine.is_within(time)


def test_when_the_machine_slept_and_its_clock_stood_still_then_the_next_reply_tells() -> None:
    """T8: a monotonic clock need not count the sleep of its machine."""
    machine = Machine()
    time = ServerTime(machine.local_s)
    machine.ask(time, 0.1, 0.1)

    machine.true_s += 60.0
    machine.stood_s += 60.0
    assert not machine.is_within(time)
    machine.ask(time, 0.1, 0.1)

    assert machine.is_within(time)
