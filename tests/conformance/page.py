"""Writes docs/conformance.md: `python -m tests.conformance.page` after adding a test.

A test claims a requirement by naming its number in its docstring, or in its class's.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from pump.capabilities import Capabilities

from .gateways import EVERY_GATEWAY
from .operations import matrix
from .titles import BUILT, INSTEAD, MEASURED_WAITS, TITLES

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "conformance.md"
CONTRACT = Path("pump/testing/contract")
NAMED = [(name, gateway.capabilities) for name, gateway in EVERY_GATEWAY.items()]
_NUMBER = re.compile(r"\b([RT])(\d+)(?:\s?[–-]\s?[RT]?(\d+))?\b")
_SHOWN = 4
PACE = (
    "is_durable",
    "is_shared",
    "spans_machines",
    "receive_batch",
    "settle_batch",
    "settle_linger_s",
    "max_settle_calls",
    "max_pollers",
)
"""What is no operation: where a gateway can be used, and how the pump asks it."""


_INTRODUCTION = """\
# Conformance

Which tests hold each requirement, and what each gateway can do. This page is written by
`python -m tests.conformance.page`, and a test fails when it is out of date.

Tests in `pump/testing/contract` run against every gateway; a test that needs a
capability the gateway does not declare is left out by that capability, never by name.
*In part* means that tests touch a requirement which is not met as a whole yet.

## Gateways

*Native*: the provider does it, or the gateway's own store where there is no other. *Emulated*: the
gateway makes it up, by a detour that its page describes. *No* says what is raised, or what happens
instead. The table is made from the capabilities that the gateways declare; the contract suite holds
them to what they declare, and `tests/conformance/test_matrix.py` to the errors.

"""
_REMARKS = """
On SQS, order, groups, sessions and de-duplication are those of FIFO queues, and the provider
chooses the session (R42). S3 has two layouts, chosen for each queue. Service Bus is tested against
a peer of ours that the real SDK talks to, not against Azure.

### What the pump goes by

"""
_INSTEAD = """
## Held otherwise

Where a source asks for a mechanism, and its purpose is held by another.

| | asked for | its purpose | what replaces it | proved by |
|---|---|---|---|---|
"""
_WAITS = """
## How exactly an empty receive waits

R4 asks for 100 ms. Measured on each real server, with waits of 0, 0.05, 0.75 and 1.25 s, three
times each, over loopback on a machine of two cores that others kept busy (a load of 8 to 12);
`tests/conformance/test_waits.py` measures again.

| server | late by |
|---|---|
"""
_REQUIREMENTS = """
## Requirements

| | requirement | held by |
|---|---|---|
"""


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
        *_INTRODUCTION.splitlines(),
        *matrix(NAMED),
        *_REMARKS.splitlines(),
        *_declared(),
        *_INSTEAD.splitlines(),
        *_held_otherwise(),
        *_WAITS.splitlines(),
        *(f"| {server} | {late} |" for server, late in MEASURED_WAITS),
        *_REQUIREMENTS.splitlines(),
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


def _held_otherwise() -> Iterator[str]:
    for each in INSTEAD:
        tests = "<br>".join(f"`{test}`" for test in each.tests)
        cells = (each.number, each.asked, each.purpose, each.replaced_by, tests)
        yield f"| {' | '.join(cells)} |"


def _declared() -> Iterator[str]:
    yield f"| capability | {' | '.join(name for name, _ in NAMED)} |"
    yield f"|---|{'---|' * len(NAMED)}"
    for name in PACE:
        yield f"| `{name}` | {' | '.join(_cell(each, name) for _, each in NAMED)} |"


def _cell(capabilities: Capabilities, name: str) -> str:
    value = getattr(capabilities, name)
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}"


if __name__ == "__main__":
    PAGE.write_text(render())
