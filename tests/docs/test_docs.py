"""Every Python block of the documentation runs, every link leads somewhere."""

from __future__ import annotations

import asyncio
import inspect
import re
from pathlib import Path

import attrs
import pytest

from pump.subscription import Subscription
from tests.together import together

from .fields import SUBSCRIPTION, TABLES

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted(
    path
    for path in (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *ROOT.glob("*/README.md"))
    if path.is_file() and ".venv" not in path.parts
)
_BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\((?!https?:|#)([^)#]+)")
_ANCHOR = re.compile(r"\]\((?!https?:)([^)#]*)#([^)]+)\)")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
_FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


def name_of(page: Path) -> str:
    """What a page is called in a report."""
    return page.relative_to(ROOT).as_posix()


@pytest.mark.parametrize(
    "page", [page for page in PAGES if _BLOCK.search(page.read_text())], ids=name_of
)
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


def test_every_link_leads_somewhere() -> None:
    with together() as each:
        for page in PAGES:
            with each(name_of(page)):
                targets = _LINK.findall(page.read_text())
                assert [name for name in targets if not (page.parent / name).exists()] == []


def anchors_of(page: Path) -> set[str]:
    """What a page's headings are called in links."""
    headings = _HEADING.findall(_FENCED.sub("", page.read_text()))
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_link_to_a_heading_finds_it() -> None:
    with together() as each:
        for page in PAGES:
            links = _ANCHOR.findall(_FENCED.sub("", page.read_text()))
            with each(name_of(page)):
                missing = [
                    f"{target}#{anchor}"
                    for target, anchor in links
                    if anchor not in anchors_of(page.parent / target if target else page)
                ]
                assert missing == []


def test_a_table_that_repeats_code_is_up_to_date() -> None:
    with together() as each:
        for table in TABLES:
            with each(table.declared):
                is_up_to_date = table.page.read_text() == table.rendered()
                assert is_up_to_date, "run: python -m tests.docs.fields"


def test_every_field_of_a_subscription_is_documented() -> None:
    page = SUBSCRIPTION.page.read_text()
    documented = set(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE))

    assert {field.name for field in attrs.fields(Subscription)} <= documented
