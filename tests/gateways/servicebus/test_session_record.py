"""What is noted about a session, and what is not ours to read."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from gateways.servicebus.session import record, rests_until


@given(st.floats(min_value=1, max_value=1e12))
def test_when_a_session_rests_then_its_end_is_read_back(until_s: float) -> None:
    assert rests_until(record(until_s)) == until_s


@pytest.mark.parametrize("state", [None, b""])
def test_when_nothing_is_noted_then_a_session_goes_on(state: bytes | None) -> None:
    assert rests_until(state) == 0.0


@given(st.binary(min_size=1))
def test_when_a_state_is_somebody_elses_then_it_is_not_read(state: bytes) -> None:
    assert rests_until(state) is None


def test_when_our_note_is_broken_then_the_session_goes_on() -> None:
    assert rests_until(b'{"pump-session": 1, "rests_until": "soon"}') == 0.0
    assert rests_until(b'{"pump-session": 2}') is None
