"""Every Python block of the documentation runs, every link leads somewhere."""

from __future__ import annotations

import asyncio
import inspect
import re
from pathlib import Path

import attrs
import pytest

from pump.subscription import Subscription

from .fields import PAGE, rendered

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted(
    path
    for path in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *ROOT.glob("*/README.md"))
    if path.is_file() and ".venv" not in path.parts
)
_BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\((?!https?:|#)([^)#]+)")


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_every_python_block_runs(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page's blocks run in order, in one namespace; its async tests are run."""
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {"__name__": "documentation"}

    for number, block in enumerate(_BLOCK.findall(page.read_text()), 1):
        exec(compile(block, f"{page.name}, block {number}", "exec"), namespace)
        for name, value in list(namespace.items()):
            if inspect.iscoroutinefunction(value) and name.startswith("test_"):
                asyncio.run(value())
                del namespace[name]


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_every_link_leads_somewhere(page: Path) -> None:
    missing = [
        target for target in _LINK.findall(page.read_text()) if not (page.parent / target).exists()
    ]

    assert missing == []


def test_the_table_of_fields_is_up_to_date() -> None:
    assert PAGE.read_text() == rendered(), "run: python -m tests.docs.fields"


def test_every_field_of_a_subscription_is_documented() -> None:
    documented = set(re.findall(r"^\| `(\w+)` \|", PAGE.read_text(), re.MULTILINE))

    assert {field.name for field in attrs.fields(Subscription)} <= documented
