"""A pytest plugin: a file that cannot hold a test of the marks asked for is not read.

`make test-brokers` has a dozen workers, and each would collect all tests of the tree to leave out
three of four. A file shows which marks its tests may have: it names them, or a `conftest.py` or
other module beside or above it does. A test with a mark that its file does not show ends the run.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

import pytest

ON_DEMAND = frozenset({"broker", "slow", "spark"})
"""The marks that decide which of our targets runs a test."""
_TESTS = Path(__file__).parent
_TERM = re.compile(r"(not )?(\w+)")
_MARK = re.compile(r"\bmark\.(\w+)")
_OF_ALL = re.compile(r"^pytestmark = .*$", re.MULTILINE)


def may_hold(expression: str, *, named: frozenset[str], of_all: frozenset[str]) -> bool:
    """Whether `-m expression` may choose a test of a file that names these marks, and gives those
    to all its tests. An expression other than `x and not y …` may choose any.
    """
    terms = [_TERM.fullmatch(term.strip()) for term in expression.split(" and ")]
    return not any(
        name in of_all if is_left_out else name in ON_DEMAND - named
        for is_left_out, name in (term.groups() for term in terms if all(terms) and term)
    )


def marks_named(path: Path) -> frozenset[str]:
    """Those that the file names, and those of what the tests of its folder share."""
    folders = [each for each in path.parents if each.is_relative_to(_TESTS) and each != _TESTS]
    return _marks(path.read_text(encoding="utf-8")).union(*map(_shared_marks, folders))


def marks_of_all(path: Path) -> frozenset[str]:
    """Those that the file gives to all its tests."""
    return _marks("\n".join(_OF_ALL.findall(path.read_text(encoding="utf-8"))))


@cache
def _shared_marks(folder: Path) -> frozenset[str]:
    shared = (each for each in folder.glob("*.py") if not each.name.startswith("test_"))
    return frozenset().union(*(_marks(each.read_text(encoding="utf-8")) for each in shared))


def _marks(text: str) -> frozenset[str]:
    return ON_DEMAND.intersection(_MARK.findall(text))


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out what has nothing to run; a file that was named is read in any case."""
    if collection_path.suffix != ".py" or not (chosen := config.getoption("markexpr")):
        return None
    named, of_all = marks_named(collection_path), marks_of_all(collection_path)
    return None if may_hold(chosen, named=named, of_all=of_all) else True


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: Sequence[pytest.Item]) -> None:
    """Every test that was read, before any is left out: its file shows its marks."""
    if hidden := sorted(set(_hidden(items))):
        raise pytest.UsageError(
            *(f"{path}: has tests marked {mark}, and names no mark.{mark}" for path, mark in hidden)
        )


def _hidden(items: Sequence[pytest.Item]) -> Iterator[tuple[str, str]]:
    for item in items:
        marks = ON_DEMAND.intersection(mark.name for mark in item.iter_markers())
        for mark in marks - marks_named(item.path) if marks else ():
            yield str(item.path), mark
