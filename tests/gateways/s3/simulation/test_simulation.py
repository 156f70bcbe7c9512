"""Everything that can go wrong goes wrong, by seed: no message lost, no two owners, order kept."""

from __future__ import annotations

import pytest

from .cases import CASES, Case
from .running import run

QUICK = range(36)
"""Seeds of each kind of queue, in every run."""
SLOW = range(36, 300)
"""Those that a slow run has besides."""
CHUNK = 12
"""Seeds a test: few enough for its timeout, enough for the tests to be shared among cores."""
KNOWN = {
    "an ack in doubt had been written, and a lease on what it removed was not confirmed": (
        "leases-strict",
        253,
    ),
}
"""Seeds that found a mistake, by what had happened. What a failing test prints comes here."""


def keep_promises(case: Case, seeds: range) -> None:
    for seed in seeds:
        outcome = run(seed, case)
        assert outcome.broken is None, outcome.describe()


@pytest.mark.parametrize("first", QUICK[::CHUNK])
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_when_requests_clocks_and_processes_fail_then_all_promises_are_kept(
    case: Case, first: int
) -> None:
    """R10-R16, R48, T8: by seed, with every promise checked at every event (`ledger`)."""
    keep_promises(case, range(first, first + CHUNK))


@pytest.mark.parametrize("story", KNOWN)
def test_when_what_once_broke_a_promise_happens_again_then_it_is_kept(story: str) -> None:
    """R10-R16, R48, T8."""
    name, seed = KNOWN[story]

    keep_promises(CASES[name], range(seed, seed + 1))


@pytest.mark.slow
@pytest.mark.parametrize("first", SLOW[::CHUNK])
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_when_they_fail_in_many_more_ways_then_all_promises_are_kept(
    case: Case, first: int
) -> None:
    """R10-R16, R48, T8: as above, with other seeds."""
    keep_promises(case, range(first, first + CHUNK))
