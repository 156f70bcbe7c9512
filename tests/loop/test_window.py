"""Window: never more in hand than was allowed when it was taken."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from pump.loop.receiving import Window


class WindowMachine(RuleBasedStateMachine):
    """Against two numbers: the limit, and what is out."""

    def __init__(self) -> None:
        super().__init__()
        self.limit = 10
        self.out = 0
        self.window = Window(10)

    @precondition(lambda self: self.out < self.limit)
    @rule(data=st.data())
    def take(self, data: st.DataObject) -> None:
        count = data.draw(st.integers(1, self.limit - self.out))
        self.window.take(count)
        self.out += count

    @rule(data=st.data())
    def give(self, data: st.DataObject) -> None:
        count = data.draw(st.integers(0, self.out))
        self.window.give(count)
        self.out -= count

    @rule(limit=st.integers(0, 30))
    def resize(self, limit: int) -> None:
        self.window.resize(limit)
        self.limit = limit

    @rule(excess=st.integers(1, 5))
    def take_too_many(self, excess: int) -> None:
        with pytest.raises(ValueError, match="to be had"):
            self.window.take(max(0, self.limit - self.out) + excess)

    @rule(excess=st.integers(1, 5))
    def give_too_many(self, excess: int) -> None:
        with pytest.raises(ValueError, match="are out"):
            self.window.give(self.out + excess)

    @rule(count=st.integers(-5, 0))
    def take_nothing(self, count: int) -> None:
        with pytest.raises(ValueError, match="to be had"):
            self.window.take(count)

    @rule(batch=st.integers(1, 20), waiting=st.integers(0, 3))
    def request_size(self, batch: int, waiting: int) -> None:
        size = self.window.request_size(batch=batch, waiting=waiting)

        room = max(0, self.limit - self.out)
        assert size == (batch if room >= batch else room if waiting == 0 else 0)

    @invariant()
    def agrees_with_the_model(self) -> None:
        assert self.window.limit == self.limit
        assert self.window.in_flight == self.out
        assert self.window.credit == max(0, self.limit - self.out)


TestWindow = WindowMachine.TestCase


@given(st.integers(1, 50), st.integers(1, 50))
def test_when_a_window_shrinks_then_it_waits_until_enough_has_come_back(
    before: int, after: int
) -> None:
    window = Window(before)
    window.take(before)

    window.resize(after)

    assert window.credit == max(0, after - before)
    window.give(before)
    assert window.credit == after
