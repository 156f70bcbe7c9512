"""Writes the tables that repeat code: `python -m tests.docs.fields`.

The fields of a `Subscription`, in docs/subscriptions.md, and the queue options of SQS, in
docs/gateways-sqs.md.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import attrs

from gateways.sqs import queue_settings
from pump import subscription

DOCS = Path(__file__).resolve().parents[2] / "docs"


@attrs.frozen(kw_only=True)
class Table:
    """One table of one page, between `<!-- marker -->` and `<!-- /marker -->`."""

    page: Path
    marker: str
    module: ModuleType
    declared: str
    head: str
    third: str
    """What stands between a field's name and its text: its `default` or its `type`."""

    def rendered(self) -> str:
        """The page with this table made anew."""
        start, end = f"<!-- {self.marker} -->", f"<!-- /{self.marker} -->"
        before, rest = self.page.read_text().split(start)
        _, after = rest.split(end)
        table = "\n".join([self.head, "|---|---|---|", *self.rows()])
        return f"{before}{start}\n{table}\n{end}{after}"

    def rows(self) -> Iterator[str]:
        """One row a field, from its declaration and the text that follows it."""
        for name, field, words in declarations(self.module, self.declared):
            third = _default(field) if self.third == "default" else _type(field.annotation)
            yield f"| `{name}` | {third} | {' '.join(words.split())} |"


def declarations(module: ModuleType, name: str) -> Iterator[tuple[str, ast.AnnAssign, str]]:
    """The fields of a class that are followed by a text."""
    tree = ast.parse(inspect.getsource(module))
    [found] = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name]
    for field, text in zip(found.body, found.body[1:], strict=False):
        match field, text:
            case (
                ast.AnnAssign(target=ast.Name(id=name)),
                ast.Expr(value=ast.Constant(value=str(words))),
            ):
                yield name, field, words


def _default(field: ast.AnnAssign) -> str:
    value = field.value
    if value is None:
        return ""
    if isinstance(value, ast.Call) and ast.unparse(value.func) == "attrs.field":
        [value] = [each.value for each in value.keywords if each.arg in ("default", "factory")]
    return f"`{ast.unparse(value).replace('dict', '{}')}`"


def _type(annotation: ast.expr) -> str:
    match annotation:
        case ast.BinOp(left=left, op=ast.BitOr(), right=ast.Constant(value=None)):
            return _type(left)
        case ast.Subscript(value=ast.Name(id="Literal"), slice=ast.Tuple(elts=choices)):
            return " or ".join(f"`{ast.unparse(choice)}`" for choice in choices)
    return f"`{ast.unparse(annotation)}`"


SUBSCRIPTION = Table(
    page=DOCS / "subscriptions.md",
    marker="fields",
    module=subscription,
    declared="Subscription",
    head="| field | default | |",
    third="default",
)
SQS_OPTIONS = Table(
    page=DOCS / "gateways-sqs.md",
    marker="options",
    module=queue_settings,
    declared="QueueOptions",
    head="| option | type | |",
    third="type",
)
TABLES = (SUBSCRIPTION, SQS_OPTIONS)


if __name__ == "__main__":
    for each in TABLES:
        each.page.write_text(each.rendered())
