"""Bars and rates for a terminal."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from pump.cli.console import ASCII, BLOCKS, bars, rate


def test_when_values_differ_then_the_largest_reaches_the_top() -> None:
    assert bars([0, 1, 2, 4], height=2) == ["   █", " ▄██"]


def test_when_a_value_is_small_then_it_is_still_seen() -> None:
    assert bars([1, 100_000], height=1) == ["▁█"]


def test_when_blocks_are_not_to_be_had_then_there_is_ascii() -> None:
    assert bars([0, 1, 2, 3], height=1, levels=ASCII) == [" .:#"]


def test_when_there_is_nothing_then_the_chart_is_blank() -> None:
    assert bars([], height=2) == ["", ""]
    assert bars([0, 0], height=1) == ["  "]


@given(
    st.lists(st.integers(0, 10**9), min_size=1), st.integers(1, 5), st.sampled_from([BLOCKS, ASCII])
)
def test_a_chart_is_as_wide_as_its_values_and_never_lies_about_their_order(
    values: list[int], height: int, levels: str
) -> None:
    lines = bars(values, height=height, levels=levels)

    filled = [sum(levels.index(line[at]) for line in lines) for at in range(len(values))]
    assert {len(line) for line in lines} == {len(values)}
    assert all(
        (a <= b) or (x >= y)
        for a, x in zip(values, filled, strict=True)
        for b, y in zip(values, filled, strict=True)
    )
    assert all(bool(value) == bool(fill) for value, fill in zip(values, filled, strict=True))


@pytest.mark.parametrize(
    ("count", "span_s", "expected"),
    [
        (120_400, 100, "1,204/s"),
        (15, 10, "1.5/s"),
        (1, 1, "1/s"),
        (30, 60, "30/min"),
        (1, 120, "30/h"),
        (2, 86_400, "2/d"),
        (0, 10, "0/d"),
    ],
)
def test_a_rate_is_told_in_the_unit_that_makes_a_number_of_it(
    count: int, span_s: float, expected: str
) -> None:
    assert rate(count, span_s) == expected
