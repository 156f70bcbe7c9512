"""The simulation has teeth: each classic mistake, planted into the real code, is found."""

from __future__ import annotations

import pytest

from .cases import CASES, Case
from .plants import PLANTS, Plant
from .running import Outcome, run

# Which seed finds a mistake changes with the code: some take a hundred, on a busy machine too.
pytestmark = pytest.mark.timeout(180)

MAX_SEEDS = 400
"""A mistake that takes more seeds than this to be found is not found."""
LAYOUTS = {case.layout: case for case in reversed(CASES.values())}
"""One kind of queue of each layout."""
PLANTED = [
    (plant.name, case)
    for plant in PLANTS.values()
    for layout, case in LAYOUTS.items()
    if plant is not Plant and layout in plant.layouts
]


def first_broken(case: Case, plant: str) -> Outcome | None:
    outcomes = (run(seed, case, plant) for seed in range(MAX_SEEDS))
    return next((outcome for outcome in outcomes if outcome.broken), None)


@pytest.mark.parametrize(
    ("plant", "case"), PLANTED, ids=[f"{plant}-{case.layout}" for plant, case in PLANTED]
)
def test_when_a_classic_mistake_is_planted_then_a_seed_finds_it(plant: str, case: Case) -> None:
    """T8: what the simulation would say if the protocol had the mistake."""
    found = first_broken(case, plant)

    assert found is not None, f"{MAX_SEEDS} seeds do not find {plant} in {case.name}"
    assert found.is_promise, f"{plant} in {case.name} is only found by a crash: {found.broken}"


@pytest.mark.parametrize(
    ("plant", "words"),
    [
        ("delete-on-reclaim", "two live owners"),
        ("local-clock", "two live owners"),
        ("equal-bodies", "two live owners"),
        ("unconfirmed", "after its ack was confirmed"),
        ("busy-is-refused", "was refused"),
    ],
)
def test_when_a_mistake_is_found_then_it_is_the_one_that_it_leads_to(
    plant: str, words: str
) -> None:
    """T8: the promise that is broken is the one that the mistake is known to break."""
    outcomes = (run(seed, CASES["reference"], plant) for seed in range(MAX_SEEDS))

    assert any(words in (outcome.broken or "") for outcome in outcomes)
