"""adapt_pollers: more while receives come back full, fewer while they come back empty."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from pump.loop.receiving import adapt_pollers


@pytest.mark.parametrize(
    ("target", "asked", "got", "expected"),
    [
        (1, 10, 10, 2),
        (3, 10, 10, 4),
        (4, 10, 10, 4),
        (3, 10, 11, 4),
        (3, 10, 1, 3),
        (3, 10, 9, 3),
        (3, 10, 0, 2),
        (1, 10, 0, 1),
    ],
)
def test_when_a_receive_has_come_back_then_the_pollers_follow_the_table(
    target: int, asked: int, got: int, expected: int
) -> None:
    assert adapt_pollers(target, asked=asked, got=got, most=4) == expected


@given(st.integers(1, 8), st.integers(1, 10), st.data())
def test_when_pollers_adapt_then_there_is_always_one_and_never_too_many(
    target: int, asked: int, data: st.DataObject
) -> None:
    most = data.draw(st.integers(target, 10))
    got = data.draw(st.integers(0, asked))

    adapted = adapt_pollers(target, asked=asked, got=got, most=most)

    assert 1 <= adapted <= most
    assert abs(adapted - target) <= 1
