"""Writes the table of fields in docs/subscriptions.md: `python -m tests.docs.fields`."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from pathlib import Path

from pump import subscription

PAGE = Path(__file__).resolve().parents[2] / "docs" / "subscriptions.md"
START, END = "<!-- fields -->", "<!-- /fields -->"


def rows() -> Iterator[str]:
    """One row a field, from its declaration and the text that follows it."""
    tree = ast.parse(inspect.getsource(subscription))
    [declared] = [
        node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "Subscription"
    ]
    for field, text in zip(declared.body, declared.body[1:], strict=False):
        match field, text:
            case (
                ast.AnnAssign(target=ast.Name(id=name), value=value),
                ast.Expr(value=ast.Constant(value=str(words))),
            ):
                default = "" if value is None else f"`{_default(value)}`"
                yield f"| `{name}` | {default} | {' '.join(words.split())} |"


def _default(value: ast.expr) -> str:
    if isinstance(value, ast.Call) and ast.unparse(value.func) == "attrs.field":
        [value] = [each.value for each in value.keywords if each.arg in ("default", "factory")]
    return ast.unparse(value).replace("dict", "{}")


def rendered() -> str:
    """The page with its table made anew."""
    before, rest = PAGE.read_text().split(START)
    _, after = rest.split(END)
    table = "\n".join(["| field | default | |", "|---|---|---|", *rows()])
    return f"{before}{START}\n{table}\n{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(rendered())
