import pytest
from hypothesis import given, strategies as st

from pump.bench.measuring import Load
from pump.errors import ConfigurationError

RATES = st.floats(min_value=0.1, max_value=100_000)
COUNTS = st.integers(min_value=1, max_value=100_000)
LIMITS = st.floats(min_value=0.1, max_value=3_600)


def test_without_a_rate_all_are_due_at_once() -> None:
    load = Load(messages=500)

    assert (load.total, load.due_count(0.0), load.due_at_s(499)) == (500, 500, 0.0)


def test_with_a_rate_each_has_its_moment() -> None:
    load = Load(messages=100, rate=10.0, limit_s=60.0)

    assert [load.due_at_s(number) for number in (0, 1, 99)] == [0.0, 0.1, 9.9]
    assert [load.due_count(elapsed_s) for elapsed_s in (0.0, 0.95, 60.0)] == [1, 10, 100]


def test_no_more_are_sent_than_the_limit_has_room_for() -> None:
    assert Load(messages=1_000, rate=10.0, limit_s=3.0).total == 30


@given(RATES, COUNTS, LIMITS)
def test_at_least_one_is_sent_and_never_more_than_asked_for(
    rate: float, count: int, limit_s: float
) -> None:
    assert 1 <= Load(messages=count, rate=rate, limit_s=limit_s).total <= count


@given(RATES, st.lists(st.floats(min_value=0, max_value=100), min_size=2))
def test_due_messages_only_grow_in_number(rate: float, moments: list[float]) -> None:
    load = Load(messages=1_000_000, rate=rate, limit_s=100.0)
    counts = [load.due_count(moment) for moment in sorted(moments)]

    assert counts == sorted(counts)


@given(RATES, st.integers(min_value=0, max_value=1_000), st.floats(min_value=0, max_value=100))
def test_a_pause_is_never_nothing_and_never_ends_after_the_next_is_due_by_more_than_a_tick(
    rate: float, sent: int, elapsed_s: float
) -> None:
    load = Load(messages=1_000_000, rate=rate, limit_s=100.0)
    pause_s = load.pause_s(sent, elapsed_s)

    assert pause_s > 0
    assert elapsed_s + pause_s <= max(load.due_at_s(sent), elapsed_s) + 0.0021


def test_groups_share_the_messages_out() -> None:
    load = Load(messages=4, groups=2)

    assert [load.group(n) for n in range(4)] == ["bench-0", "bench-1", "bench-0", "bench-1"]
    assert Load(messages=1).group(0) is None


@pytest.mark.parametrize(
    "wrong",
    [{"messages": 0}, {"messages": 1, "rate": 0.0}, {"messages": 1, "groups": -1}],
)
def test_what_cannot_be_sent_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ConfigurationError):
        Load(**wrong)  # type: ignore[arg-type]
