"""The simulation has teeth: each classic mistake, planted into the real code, is found."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .cases import CASES, Case
from .plants import PLANTS, Plant
from .running import Outcome, run

# Which seed finds a mistake changes with the code: then many are tried, on a busy machine too.
pytestmark = pytest.mark.timeout(180)

MAX_SEEDS = 400
"""A mistake that takes more seeds than this to be found is not found."""
FOUND_BY = {
    ("blind-heartbeat", "leases-fifo"): 20,
    ("blind-ack", "leases-fifo"): 35,
    ("own-refusal", "leases-fifo"): 54,
    ("busy-is-undecided", "leases-fifo"): 13,
    ("equal-bodies", "reference"): 83,
    ("own-refusal", "reference"): 16,
    ("busy-is-refused", "reference"): 13,
    ("busy-is-undecided", "reference"): 13,
}
"""The first seed that found a mistake when this was last looked up: tried before all others."""
LAYOUTS = {case.layout: case for case in reversed(CASES.values())}
"""One kind of queue of each layout."""
PLANTED = [
    (plant.name, case)
    for plant in PLANTS.values()
    for layout, case in LAYOUTS.items()
    if plant is not Plant and layout in plant.layouts
]


def outcomes(case: Case, plant: str, first: int) -> Iterator[Outcome]:
    return (run(seed, case, plant) for seed in (first, *range(MAX_SEEDS)))


def first_broken(case: Case, plant: str) -> Outcome | None:
    found = outcomes(case, plant, FOUND_BY.get((plant, case.name), 0))
    return next((outcome for outcome in found if outcome.broken), None)


@pytest.mark.parametrize(
    ("plant", "case"), PLANTED, ids=[f"{plant}-{case.layout}" for plant, case in PLANTED]
)
def test_when_a_classic_mistake_is_planted_then_a_seed_finds_it(plant: str, case: Case) -> None:
    """T8: what the simulation would say if the protocol had the mistake."""
    found = first_broken(case, plant)

    assert found is not None, f"{MAX_SEEDS} seeds do not find {plant} in {case.name}"
    assert found.is_promise, f"{plant} in {case.name} is only found by a crash: {found.broken}"


@pytest.mark.parametrize(
    ("plant", "words", "first"),
    [
        ("delete-on-reclaim", "two live owners", 39),
        ("local-clock", "two live owners", 1),
        ("equal-bodies", "two live owners", 83),
        ("unconfirmed", "after its ack was confirmed", 0),
        ("busy-is-refused", "was refused", 13),
    ],
)
def test_when_a_mistake_is_found_then_it_is_the_one_that_it_leads_to(
    plant: str, words: str, first: int
) -> None:
    """T8: the promise that is broken is the one that the mistake is known to break."""
    found = outcomes(CASES["reference"], plant, first)

    assert any(words in (outcome.broken or "") for outcome in found)
