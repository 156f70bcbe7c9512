"""Writes docs/conformance.md: `python -m tests.conformance.page` after adding a test.

A test claims a requirement by naming its number in its docstring, or in its class's.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import attrs

from gateways.local import LocalGateway
from gateways.memory import MemoryGateway
from gateways.sqs import SqsGateway
from pump.capabilities import Capabilities

from .titles import BUILT, TITLES

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "conformance.md"
CONTRACT = Path("pump/testing/contract")
GATEWAYS = (
    MemoryGateway().capabilities,
    LocalGateway("unused").capabilities,
    SqsGateway().capabilities,
)
_NUMBER = re.compile(r"\b([RT])(\d+)(?:\s?[–-]\s?[RT]?(\d+))?\b")
_SHOWN = 4


def claims() -> dict[str, list[str]]:
    """The tests that claim each requirement, as `file::test`."""
    found: dict[str, list[str]] = defaultdict(list)
    for path in sorted([*(ROOT / "tests").rglob("test_*.py"), *(ROOT / CONTRACT).glob("*.py")]):
        for name, text in _tests_of(path):
            for number in _numbers(text):
                found[number].append(f"{path.relative_to(ROOT).as_posix()}::{name}")
    return found


def _tests_of(path: Path) -> Iterator[tuple[str, str]]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith(
            "test_"
        ):
            yield node.name, f"{ast.get_docstring(node) or ''} {node.name.replace('_', ' ')}"


def _numbers(text: str) -> Iterator[str]:
    for letter, first, last in _NUMBER.findall(text):
        for number in range(int(first), int(last or first) + 1):
            if f"{letter}{number}" in TITLES:
                yield f"{letter}{number}"


def render() -> str:
    """The whole page."""
    found = claims()
    lines = [
        "# Conformance",
        "",
        "Which tests hold each requirement, and what each gateway can do. This page is written by",
        "`python -m tests.conformance.page`, and a test fails when it is out of date.",
        "",
        "Tests in `pump/testing/contract` run against every gateway; a test that needs a",
        "capability the gateway does not declare is left out by that capability, never by name.",
        "*In part* means that tests touch a requirement which is not met as a whole yet.",
        "",
        "## Gateways",
        "",
        *_matrix(),
        "",
        "Sessions are built on SQS only so far, with the limits of its message groups (R42): the",
        "provider chooses the session, so no second accept by name can fail (R40), and R41 is held",
        "there and in the core. The other gateways raise `UnsupportedOperation`.",
        "",
        "## Requirements",
        "",
        "| | requirement | held by |",
        "|---|---|---|",
    ]
    for number, title in TITLES.items():
        tests = sorted(set(found.get(number, [])))
        lines.append(f"| {number} | {title} | {_held_by(number, tests)} |")
    return "\n".join([*lines, ""])


def _held_by(number: str, tests: list[str]) -> str:
    if not tests:
        return "*nothing yet: comes with a later gateway or part*"
    lines = [f"`{test}`" for test in tests[:_SHOWN]]
    if len(tests) > _SHOWN:
        lines.append(f"and {len(tests) - _SHOWN} more")
    if number not in BUILT:
        lines.insert(0, "*in part; the rest comes with a later gateway or part:*")
    return "<br>".join(lines)


def _matrix() -> Iterator[str]:
    yield f"| capability | {' | '.join(each.gateway for each in GATEWAYS)} |"
    yield f"|---|{'---|' * len(GATEWAYS)}"
    for field in attrs.fields(Capabilities):
        if field.name != "gateway":
            yield f"| `{field.name}` | {' | '.join(_cell(each, field.name) for each in GATEWAYS)} |"


def _cell(capabilities: Capabilities, name: str) -> str:
    value = getattr(capabilities, name)
    if name == "has_sessions" and value and not capabilities.has_session_choice:
        return "emulated"
    if isinstance(value, bool):
        return "native" if value else "no"
    if isinstance(value, frozenset):
        return ", ".join(sorted(value))
    return "no limit" if value is None else str(value)


if __name__ == "__main__":
    PAGE.write_text(render())
