"""docs/conformance.md says what is so."""

from __future__ import annotations

from .page import PAGE, claims, render
from .titles import TITLES

# What the core answers for; the other numbers come with the gateways and parts that need them.
CORE = {f"R{number}" for number in (*range(1, 34), *range(35, 40), 43, 44, 45, 51, 53, 55, 56, 58)}
CORE |= {f"T{number}" for number in (1, 2, 3, 4, 5, 7, 10)}


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text() == render(), "run: python -m tests.conformance.page"


def test_every_requirement_of_the_core_is_claimed_by_a_test() -> None:
    assert sorted(CORE - set(claims())) == []


def test_every_requirement_is_listed() -> None:
    numbers = {f"R{number}" for number in range(1, 79)} | {f"T{number}" for number in range(1, 13)}

    assert set(TITLES) == numbers
