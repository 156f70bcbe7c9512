"""Everything that can go wrong goes wrong, by seed: no message lost, no two owners, order kept."""

from __future__ import annotations

import pytest

from .cases import CASES, Case
from .running import run

CHUNK = 25
"""Seeds a test: few enough for its timeout, enough for the tests to be shared among cores."""
CHUNKS = 14
"""For each kind of queue, in every run."""
SLOW_CHUNKS = 10
"""As many again as a slow run has besides."""


def keep_promises(case: Case, seeds: range) -> None:
    for seed in seeds:
        outcome = run(seed, case)
        assert outcome.broken is None, outcome.describe()


@pytest.mark.parametrize("chunk", range(CHUNKS))
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_when_requests_clocks_and_processes_fail_then_all_promises_are_kept(
    case: Case, chunk: int
) -> None:
    """R10-R16, R48, T8: by seed, with every promise checked at every event (`ledger`)."""
    keep_promises(case, range(chunk * CHUNK, (chunk + 1) * CHUNK))


@pytest.mark.slow
@pytest.mark.parametrize("chunk", range(CHUNKS, CHUNKS + SLOW_CHUNKS))
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_when_they_fail_in_many_more_ways_then_all_promises_are_kept(
    case: Case, chunk: int
) -> None:
    """R10-R16, R48, T8: as above, with other seeds."""
    keep_promises(case, range(chunk * CHUNK, (chunk + 1) * CHUNK))
