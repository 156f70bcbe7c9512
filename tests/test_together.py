"""Tests that look at many things name each that fails, and never pass for want of things."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from .together import together


def look_at(*names: str, check: Callable[[str], object]) -> None:
    """What a test does: each in turn."""
    with together() as each:
        for name in names:
            with each(name):
                check(name)


def test_when_some_things_fail_then_all_are_looked_at_and_each_that_failed_is_named() -> None:
    looked_at: list[str] = []

    def check(name: str) -> None:
        looked_at.append(name)
        assert not name.startswith("bad"), "it is bad"

    with pytest.raises(pytest.fail.Exception) as failure:
        look_at("good 1", "bad 1", "good 2", "bad 2", "good 3", check=check)

    assert len(looked_at) == 5
    report = str(failure.value)
    assert "2 of 5 failed" in report
    assert "bad 1: it is bad" in report
    assert "bad 2: it is bad" in report
    assert "good" not in report


def test_when_a_check_raises_something_else_then_its_kind_is_said() -> None:
    ages: dict[str, int] = {}

    with pytest.raises(pytest.fail.Exception, match="one: KeyError: 'one'"):
        look_at("one", check=lambda name: ages[name])


def test_when_an_error_was_expected_and_none_came_then_that_is_a_failure() -> None:
    def check(name: str) -> None:
        with pytest.raises(KeyError):
            pass

    with pytest.raises(pytest.fail.Exception, match=r"one: .*DID NOT RAISE"):
        look_at("one", check=check)


def test_when_there_is_nothing_to_look_at_then_that_is_a_failure() -> None:
    with pytest.raises(AssertionError, match="nothing was looked at"):
        look_at(check=print)


def test_when_the_test_breaks_outside_of_its_checks_then_its_own_error_is_seen() -> None:
    with pytest.raises(ZeroDivisionError), together():
        1 / 0  # noqa: B018


@pytest.mark.parametrize("leave", [KeyboardInterrupt, SystemExit])
def test_when_the_run_is_to_end_then_no_check_keeps_it(leave: type[BaseException]) -> None:
    def check(name: str) -> None:
        raise leave

    with pytest.raises(leave):
        look_at("one", check=check)
