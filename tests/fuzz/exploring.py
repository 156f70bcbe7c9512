"""Exploring: one property, tried with as many inputs as the effort allows.

The property is always the same: what is fed something answers, or refuses with one of the errors
that it documents; and a refusal can be put into words, because that is what happens to it next.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import attrs
import pytest
from hypothesis import HealthCheck, Phase, given, settings, strategies as st


@attrs.frozen
class Effort:
    """How hard to try. A short run repeats itself, a long one is another one each time."""

    examples: int
    is_random: bool
    shrinks: bool = True
    """Whether to look for the smallest input, which takes longer than to find one."""

    def of(self, share: float) -> int:
        """The number of inputs for something that costs `1 / share` as much as a parser."""
        return max(5, round(self.examples * share))


@attrs.frozen(kw_only=True)
class Target:
    """A parser, what to feed it, and which errors are answers."""

    name: str
    inputs: st.SearchStrategy[Any]
    feed: Callable[[Any], object]
    refusals: tuple[type[Exception], ...] = ()
    share: float = 1.0


def each_of(targets: Sequence[Target]) -> pytest.MarkDecorator:
    """Run a test once for each."""
    return pytest.mark.parametrize("target", targets, ids=[target.name for target in targets])


def explore(target: Target, effort: Effort) -> None:
    """Feed it; raise what is no answer, for the smallest input that Hypothesis can find."""

    @settings(
        deadline=None,
        max_examples=effort.of(target.share),
        derandomize=not effort.is_random,
        # All targets would share one key in it.
        database=None,
        report_multiple_bugs=False,
        phases=[Phase.generate, *([Phase.shrink] if effort.shrinks else [])],
        suppress_health_check=list(HealthCheck),
    )
    @given(target.inputs)
    def attempt(fed: Any) -> None:
        answer_or_refuse(target, fed)

    attempt()


def answer_or_refuse(target: Target, fed: Any) -> None:
    """Let everything out but refusals."""
    try:
        target.feed(fed)
    except target.refusals as refusal:
        f"{refusal} {refusal!r}"
