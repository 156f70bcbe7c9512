"""Backoff: the delays, and the values it refuses."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, strategies as st

from pump.backoff import RECONNECT, Backoff
from pump.errors import ConfigurationError

DURATIONS = st.timedeltas(timedelta(0), timedelta(hours=1))


@st.composite
def backoffs(draw: st.DrawFn) -> Backoff:
    initial = draw(DURATIONS)
    return Backoff(
        initial=initial,
        factor=draw(st.floats(1, 10)),
        maximum=initial + draw(DURATIONS),
        jitter=draw(st.floats(0, 1)),
    )


@pytest.mark.parametrize(
    ("attempt", "delay_s"), [(1, 1.0), (2, 3.0), (3, 9.0), (4, 20.0), (5, 20.0), (10_000, 20.0)]
)
def test_when_attempts_fail_then_the_delay_grows_by_the_factor_up_to_the_maximum(
    attempt: int, delay_s: float
) -> None:
    backoff = Backoff(initial=timedelta(seconds=1), factor=3, maximum=timedelta(seconds=20))

    assert backoff.delay_s(attempt, 0.0) == delay_s


def test_when_chance_has_its_way_then_the_jitter_is_taken_off() -> None:
    backoff = Backoff(initial=timedelta(seconds=10), jitter=0.2)

    assert backoff.delay_s(1, 0.0) == 10
    assert backoff.delay_s(1, 0.5) == 9
    assert Backoff(initial=timedelta(seconds=10), jitter=0).delay_s(1, 0.99) == 10


@given(backoffs(), st.integers(1, 1_000_000), st.floats(0, 1, exclude_max=True))
def test_when_a_delay_is_chosen_then_it_lies_between_its_bounds(
    backoff: Backoff, attempt: int, chance: float
) -> None:
    delay_s = backoff.delay_s(attempt, chance)

    most_s = backoff.delay_s(attempt, 0.0)
    assert 0 <= most_s * (1 - backoff.jitter) <= delay_s * 1.000001 + 1e-9
    assert delay_s <= most_s <= backoff.maximum.total_seconds()
    assert most_s <= backoff.delay_s(attempt + 1, 0.0)


def test_when_a_broker_is_away_then_the_first_wait_is_short_and_the_longest_bearable() -> None:
    assert RECONNECT.delay_s(1, 0.0) == 0.1
    assert RECONNECT.delay_s(50, 0.0) == 30


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("initial", timedelta(seconds=-1)),
        ("initial", 1),
        ("factor", 0.99),
        ("factor", "2"),
        ("factor", True),
        ("factor", float("nan")),
        ("factor", float("inf")),
        ("maximum", timedelta(milliseconds=999)),
        ("maximum", 300),
        ("jitter", -0.1),
        ("jitter", 1.1),
        ("jitter", None),
    ],
)
def test_when_a_value_cannot_work_then_the_error_names_field_and_value(
    field: str, value: Any
) -> None:
    """R56."""
    with pytest.raises(ConfigurationError) as caught:
        Backoff(**{field: value})

    assert caught.value.field == f"Backoff.{field}"
    assert caught.value.value is value
    assert caught.value.remedy
