"""Pages taken apart: tables and fenced blocks, by the comment that stands before them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any


def rows_between(page: Path, marker: str) -> list[list[str]]:
    """The cells of a table between `<!-- marker -->` and `<!-- /marker -->`, without its head."""
    text = page.read_text()
    _, _, rest = text.partition(f"<!-- {marker} -->\n")
    table, found, _ = rest.partition(f"<!-- /{marker} -->")
    assert found, f"{page.name} has no table {marker!r}"
    return _cells(table)


def rows_under(page: Path, heading: str) -> list[list[str]]:
    """The cells of the first table below a heading, without its head."""
    _, found, rest = page.read_text().partition(f"\n{heading}\n")
    assert found, f"{page.name} has no {heading!r}"
    table = re.search(r"(?:^\|.*\n)+", rest, re.MULTILINE)
    assert table is not None
    return _cells(table[0])


def json_after(page: Path, marker: str) -> Any:
    """The JSON block that follows `<!-- marker -->`."""
    found = re.search(
        rf"<!-- {re.escape(marker)} -->\n```json\n(.*?)^```", page.read_text(), re.M | re.S
    )
    assert found is not None, f"{page.name} has no JSON after {marker!r}"
    return json.loads(found[1])


def blocks(page: Path, language: str) -> list[str]:
    """Every fenced block of a language."""
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), re.M | re.S)


def _cells(table: str) -> list[list[str]]:
    lines = [line.strip().strip("|") for line in table.strip().splitlines()]
    return [[cell.strip() for cell in line.split("|")] for line in lines[2:]]
