"""UnacceptableCount: a sliding window over unacceptable messages."""

from __future__ import annotations

from datetime import timedelta

from hypothesis import given, strategies as st

from pump.loop.pump import UnacceptableCount
from pump.subscription import UnacceptableLimit


@given(st.integers(1, 5), st.integers(1, 20), st.lists(st.integers(0, 15), max_size=40))
def test_when_messages_are_unacceptable_then_the_limit_is_that_of_any_window(
    count: int, window_s: int, pauses_s: list[int]
) -> None:
    limit = UnacceptableLimit(count=count, window=timedelta(seconds=window_s))
    counter = UnacceptableCount(limit)
    moments: list[int] = []

    for pause_s in pauses_s:
        moments.append((moments[-1] if moments else 1_000) + pause_s)
        within = [moment for moment in moments if moment > moments[-1] - window_s]
        assert counter.is_reached(moments[-1]) == (len(within) >= count)


def test_when_there_is_no_limit_then_it_is_never_reached() -> None:
    counter = UnacceptableCount(None)

    assert not any(counter.is_reached(0.0) for _ in range(1_000))
