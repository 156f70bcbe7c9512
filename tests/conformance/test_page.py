"""docs/conformance.md says what is so."""

from __future__ import annotations

from .page import PAGE, claims, render
from .titles import BUILT, INSTEAD, TITLES


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text() == render(), "run: python -m tests.conformance.page"


def test_every_requirement_that_is_said_to_be_built_is_claimed_by_a_test() -> None:
    assert sorted(BUILT - set(claims())) == []


def test_every_test_that_proves_another_mechanism_is_there_and_claims_its_number() -> None:
    found = claims()

    lost = [test for each in INSTEAD for test in each.tests if test not in found[each.number]]

    assert lost == []


def test_every_requirement_is_listed() -> None:
    numbers = {f"R{number}" for number in range(1, 79)} | {f"T{number}" for number in range(1, 15)}

    assert set(TITLES) == numbers
