"""Every test of the contract suite can fail: for each there is a gateway it finds out."""

from __future__ import annotations

import inspect
import logging
import re
from collections.abc import Iterator

import pytest

from .saboteurs import SABOTEURS, Saboteur
from .teeth import SOAK, observe, recorded
from .trial import CONTRACT, failures

each_saboteur = pytest.mark.parametrize(
    "saboteur", SABOTEURS, ids=lambda saboteur: saboteur.__name__
)


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Asyncio complains of what saboteurs leave behind."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def test_when_no_law_is_broken_then_no_test_fails() -> None:
    assert failures(Saboteur, CONTRACT) == set()


def test_when_a_saboteur_exists_then_its_tests_are_recorded() -> None:
    assert list(recorded()) == [saboteur.__name__ for saboteur in SABOTEURS]


@each_saboteur
def test_when_a_law_is_broken_then_the_recorded_tests_fail(saboteur: type[Saboteur]) -> None:
    named = recorded()[saboteur.__name__]

    found = failures(saboteur, named)

    assert named
    assert found == named


@pytest.mark.slow
@each_saboteur
def test_when_a_law_is_broken_then_no_other_test_fails(saboteur: type[Saboteur]) -> None:
    named = recorded()[saboteur.__name__]

    found = observe(saboteur)

    assert found - {SOAK} == named - {SOAK}


def test_when_a_test_is_in_the_suite_then_some_saboteur_makes_it_fail() -> None:
    caught = frozenset().union(*recorded().values())

    assert set(CONTRACT) - caught == set()


def test_when_a_test_is_in_the_suite_then_it_says_what_it_proves() -> None:
    """A requirement by its number, or a promise of the ports that no requirement asks for."""
    unsaid = [
        name
        for name, test in CONTRACT.items()
        if not re.match(r"[RT]\d+\b|Port: ", inspect.getdoc(test) or "")
    ]

    assert unsaid == []
