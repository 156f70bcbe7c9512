"""adapt_prefetch: a larger hand while handlers are fast, a smaller one when they are not."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from pump.loop.prefetch import adapt_prefetch


@pytest.mark.parametrize(
    ("prefetch", "worked_off_s", "expected"),
    [
        (10, 0.0, 20),
        (10, 0.001, 20),
        (60, 0.0, 100),
        (100, 0.0, 100),
        (80, 3_600.0, 40),
        (15, 3_600.0, 10),
        (10, 3_600.0, 10),
        (10, float("inf"), 10),
    ],
)
def test_when_two_full_receives_are_so_far_apart_then_the_prefetch_follows(
    prefetch: int, worked_off_s: float, expected: int
) -> None:
    assert adapt_prefetch(prefetch, least=10, most=100, worked_off_s=worked_off_s) == expected


@given(st.integers(1, 1_000), st.integers(1, 1_000), st.integers(1, 1_000), st.floats(0, 1e6))
def test_when_the_prefetch_adapts_then_it_is_never_less_than_what_runs_at_once(
    prefetch: int, least: int, most: int, worked_off_s: float
) -> None:
    adapted = adapt_prefetch(prefetch, least=least, most=most, worked_off_s=worked_off_s)

    assert adapted >= min(least, prefetch)
    assert adapted <= max(least, most, prefetch)
