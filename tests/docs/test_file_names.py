"""The pages name files that are there."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from .test_docs import PAGES, ROOT

_TREES = ("pump", "gateways", "handlers", "tests", "samples", "benchmarks", "docs", "requirements")
_QUOTED = re.compile(r"`([^`\n]+)`")
_PATH = re.compile(rf"(?:{'|'.join(_TREES)})/[\w./-]*\w/?")
_MODULE = re.compile(r"(?:[\w-]+/)*\w+\.py")
_ABOUT_THE_CODE = ("architecture.md", "glossary.md", "CONTRIBUTING.md", "SECURITY.md")
"""Here, and in decisions, a bare `name.py` is a module of ours too."""
_OF_OTHERS = {"tests/test_app.py"}
"""In a project that `pump new` starts."""


def named_in(text: str, *, bare: bool) -> Iterator[str]:
    """The files and folders that a page names, each by a path of its own or by its end."""
    for quoted in _QUOTED.findall(text):
        name = quoted.split("::")[0]
        if _PATH.fullmatch(name) or (bare and _MODULE.fullmatch(name)):
            yield name


def is_there(name: str, files: set[str]) -> bool:
    whole = name.startswith(tuple(f"{tree}/" for tree in _TREES))
    if whole:
        return (ROOT / name).exists()
    return any(file.endswith(f"/{name}") for file in files)


def test_every_file_that_a_page_names_is_there() -> None:
    files = {
        path.relative_to(ROOT).as_posix() for tree in _TREES for path in (ROOT / tree).rglob("*.py")
    }
    missing = [
        f"{page.relative_to(ROOT)}: {name}"
        for page in PAGES
        for name in named_in(
            page.read_text(), bare=page.name in _ABOUT_THE_CODE or page.parent.name == "adr"
        )
        if name not in _OF_OTHERS and not is_there(name, files)
    ]

    assert not missing, "\n".join(missing)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("see `pump/loop/keeper.py`", "pump/loop/keeper.py"),
        ("see `gateways/_engine/`", "gateways/_engine/"),
        ("`tests/core/test_app.py::test_it`", "tests/core/test_app.py"),
        ("and `keeper.py` acts on it", "keeper.py"),
    ],
)
def test_when_a_page_names_a_file_then_it_is_looked_for(text: str, name: str) -> None:
    assert list(named_in(text, bare=True)) == [name]


@pytest.mark.parametrize("text", ["`pump run orders:app`", "`pump/…/wire.py`", "`gateways/<x>/`"])
def test_when_a_page_shows_something_else_then_it_is_no_file(text: str) -> None:
    assert list(named_in(text, bare=True)) == []


def test_when_a_file_is_gone_then_that_is_noticed() -> None:
    assert not is_there("pump/loop/keeper.py", set())
    assert not is_there("keeper.py", {"pump/loop/leases.py"})
