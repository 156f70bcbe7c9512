"""Which files are read for which marks."""

from __future__ import annotations

from pathlib import Path

import pytest

from .selecting import marks_named, marks_of_all, may_hold

EVERY_RUN = "not slow and not broker and not spark"
BROKERS = "broker and not slow"


@pytest.mark.parametrize(
    ("expression", "named", "of_all", "expected"),
    [
        (EVERY_RUN, "", "", True),
        (EVERY_RUN, "broker slow", "", True),
        (EVERY_RUN, "broker", "broker", False),
        (BROKERS, "", "", False),
        (BROKERS, "broker", "", True),
        (BROKERS, "broker slow", "broker", True),
        (BROKERS, "broker slow", "slow", False),
        ("slow", "broker", "broker", False),
        ("timeout", "", "", True),
        ("broker or slow", "", "", True),
        ("not (broker or slow)", "broker", "broker", True),
    ],
)
def test_when_marks_are_chosen_then_only_what_cannot_have_them_is_left_out(
    expression: str, named: str, of_all: str, expected: bool
) -> None:
    held = may_hold(expression, named=frozenset(named.split()), of_all=frozenset(of_all.split()))

    assert held is expected


def test_when_a_module_that_tests_share_names_a_mark_then_all_beside_it_may_have_it() -> None:
    tests = Path(__file__).parent

    assert "slow" in marks_named(tests / "fuzz" / "test_local.py")
    assert "broker" in marks_named(tests / "gateways" / "sqs" / "test_admin.py")
    assert marks_named(tests / "core" / "test_backoff.py") == frozenset()
    assert marks_of_all(tests / "contract" / "test_nats.py") == {"broker"}
    assert marks_of_all(tests / "contract" / "test_local.py") == frozenset()
