import pytest
from hypothesis import given, strategies as st

from pump.bench.report import spread_of
from pump.percentiles import percentile

DURATIONS = st.lists(st.floats(min_value=0, max_value=1e6), min_size=1, max_size=200)
SHARES = st.floats(min_value=0, max_value=1)


@given(DURATIONS, SHARES)
def test_a_percentile_is_a_value_that_was_measured(values: list[float], share: float) -> None:
    assert percentile(sorted(values), share) in values


@given(DURATIONS, SHARES)
def test_at_least_the_share_does_not_exceed_it_and_of_any_less_value_fewer_do_not(
    values: list[float], share: float
) -> None:
    found = percentile(sorted(values), share)
    count = len(values)

    # Ranks are whole numbers: what a float adds to a share must not count.
    assert sum(value <= found for value in values) >= share * count - 1e-9
    assert sum(value < found for value in values) <= max(0.0, share * count)


@given(DURATIONS, SHARES, SHARES)
def test_a_higher_share_is_never_a_lower_value(
    values: list[float], first: float, second: float
) -> None:
    low, high = sorted((first, second))

    assert percentile(sorted(values), low) <= percentile(sorted(values), high)


@given(DURATIONS)
def test_a_spread_is_in_order_whatever_order_the_values_came_in(values: list[float]) -> None:
    found = spread_of(values)

    assert found is not None
    assert found == spread_of(reversed(values))
    assert min(values) <= found.p50_s <= found.p90_s <= found.p99_s <= found.max_s == max(values)
    assert min(values) <= found.mean_s <= max(values)
    assert found.count == len(values)


def test_the_percentiles_of_one_to_a_hundred_are_their_own_numbers() -> None:
    found = spread_of(range(1, 101))

    assert found is not None
    assert (found.p50_s, found.p90_s, found.p99_s, found.max_s) == (50, 90, 99, 100)


def test_nothing_measured_has_no_spread() -> None:
    assert spread_of([]) is None


@pytest.mark.parametrize(("values", "share"), [([], 0.5), ([1.0], -0.1), ([1.0], 1.1)])
def test_what_has_no_percentile_is_refused(values: list[float], share: float) -> None:
    with pytest.raises(ValueError, match=r"no values|a share"):
        percentile(values, share)
