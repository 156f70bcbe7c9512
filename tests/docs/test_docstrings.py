"""Examples in docstrings are shown as they were written: indented, below a line that is not.

A docstring of which every line is indented is over-indented to `ruff check --fix`, which then takes
the indentation of its example away.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from itertools import pairwise

import pytest

from tests.architecture.source import PACKAGES, Source, sources

_TRIPLE_QUOTED = re.compile(r'^ *"""(.*?)"""', re.MULTILINE | re.DOTALL)
_OPENS_A_BLOCK = re.compile(
    r" *(?:async )?(?:class|def|if|for|while|with|try|else|finally)\b[^.;]*:"
)


def flattened(text: str) -> Iterator[str]:
    """The lines of code that open a block and are followed by one that is no deeper."""
    lines = [line for line in text.splitlines() if line.strip()]
    for line, following in pairwise(lines):
        is_deeper = _depth(following) > _depth(line)
        if _OPENS_A_BLOCK.fullmatch(line) and "(" in line + following and not is_deeper:
            yield line


def beside_the_text(text: str) -> Iterator[str]:
    """The lines that import or assign, and are set as prose is."""
    for line in text.splitlines()[1:]:
        if re.match(r"(?:from [\w.]+ import|import [\w.]+$|\w+ = )", line):
            yield line


def examples_astray(source: Source) -> Iterator[str]:
    """The lines of a module's docstrings that should be indented."""
    # To parse every module takes seconds; hardly any has a line that looks like one.
    if any(_astray(inspect.cleandoc(text)) for text in _TRIPLE_QUOTED.findall(source.text)):
        for node in ast.walk(source.tree):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                yield from _astray(ast.get_docstring(node) or "")


def test_every_example_in_a_docstring_is_indented() -> None:
    violations = [
        f"{source.path}: {line}"
        for source in sources(*PACKAGES)
        for line in examples_astray(source)
    ]

    assert not violations, "\n".join(violations)


@pytest.mark.parametrize(
    "text",
    [
        'An app.\n\napp = App("local://")',
        "An app.\n\nfrom pump import App",
        "An app.\n\nclass Greet(Command):\nname: str",
        "An app.\n\n    async def greet(request: Greet) -> None:\n    print(request)",
    ],
)
def test_when_an_example_is_flattened_then_it_is_found(text: str) -> None:
    assert _astray(text)


@pytest.mark.parametrize(
    "text",
    [
        'An app.\n\nA whole program:\n\n    app = App("local://")',
        "An app.\n\nFor each of them:\n\n    class Greet(Command):\n        name: str",
        "With this one:\nwhat follows (and nothing else)",
    ],
)
def test_when_an_example_is_indented_then_it_is_accepted(text: str) -> None:
    assert not _astray(text)


def _astray(text: str) -> list[str]:
    return [*flattened(text), *beside_the_text(text)]


def _depth(line: str) -> int:
    return len(line) - len(line.lstrip())
