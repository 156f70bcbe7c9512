"""Which tests claim a requirement: `python -m tests.conformance.claims R5` prints them.

A test claims a requirement by naming its number in its docstring, or in its name.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import defaultdict, deque
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TypeGuard

from .titles import TITLES

ROOT = Path(__file__).resolve().parents[2]
CONTRACT = "pump/testing/contract"
_NUMBER = re.compile(r"\b([RT])(\d+)(?:\s?[–-]\s?[RT]?(\d+))?\b")


@cache
def claims() -> dict[str, list[str]]:
    """The tests that claim each requirement, as `file::test`."""
    found: dict[str, list[str]] = defaultdict(list)
    for path in sorted([*(ROOT / "tests").rglob("test_*.py"), *(ROOT / CONTRACT).glob("*.py")]):
        for name, docstring in _tests_of(path):
            for number in numbers(name, docstring):
                found[number].append(f"{path.relative_to(ROOT).as_posix()}::{name}")
    return found


def _tests_of(path: Path) -> Iterator[tuple[str, str]]:
    text = path.read_text()
    nodes = deque(ast.parse(text).body if _NUMBER.search(text.replace("_", " ")) else ())
    while nodes:
        node = nodes.popleft()
        if isinstance(node, ast.ClassDef):
            nodes.extend(node.body)
        elif _is_test(node):
            yield node.name, ast.get_docstring(node) or ""


def _is_test(node: ast.stmt) -> TypeGuard[ast.FunctionDef | ast.AsyncFunctionDef]:
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return False
    return node.name.startswith("test_")


def numbers(name: str, docstring: str) -> list[str]:
    """The requirements that a test of this name and docstring claims."""
    return [
        f"{letter}{number}"
        for letter, first, last in _NUMBER.findall(f"{docstring} {name.replace('_', ' ')}")
        for number in range(int(first), int(last or first) + 1)
        if f"{letter}{number}" in TITLES
    ]


if __name__ == "__main__":
    for _number in sys.argv[1:]:
        for _test in sorted(set(claims()[_number])):
            sys.stdout.write(f"{_number}  {_test}\n")
