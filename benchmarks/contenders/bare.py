"""The pump without hooks for observers: a copy of our packages from which they were cut.

The sources are parsed, every question for a listener is answered with no, and what that makes
unreachable is left out. So what is measured as "without the hooks" is this very commit.
"""

from __future__ import annotations

import ast
import shutil
import sys
from pathlib import Path

from ..reading import ROOT, Reading

_PACKAGES = ("pump", "gateways", "handlers")
_HOOKED = ("pump/loop/*.py", "pump/posting.py")
"""Where a message passes; hooks elsewhere are met once a run."""
_LISTENERS = {"telemetry", "encryption", "emit"}
_QUESTIONS = {"wants_delivery_lines"}
_MARKS = {"MAGIC"}


def run(count: int, **options: str) -> Reading:
    """Measure the copy as `watched` measures our packages. They must not be loaded yet."""
    folder = Path.cwd() / "bare"
    if not folder.exists():  # It is there after the warm-up.
        assert "pump" not in sys.modules, "the hooks are loaded already"
        assert make_bare_copy(folder), "no hooks found to cut"
        sys.path.insert(0, str(folder))
    from .watched import run as run_watched

    return run_watched(count, **options)


class HooksCut(ast.NodeTransformer):
    """Answers every question for a listener with no, and drops what only listeners need."""

    def __init__(self) -> None:
        self.count = 0

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        self.generic_visit(node)
        if any(_name_of(each) in _MARKS for each in (node.left, *node.comparators)):
            return self._answer(False, node)
        match node:
            case ast.Compare(left, [(ast.Is() | ast.IsNot()) as how], [ast.Constant(value=None)]):
                if _name_of(left) in _LISTENERS:
                    return self._answer(isinstance(how, ast.Is), node)
        return node

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        asks_for_a_mark = any(_name_of(argument) in _MARKS for argument in node.args)
        if _name_of(node.func) in _QUESTIONS or asks_for_a_mark:
            return self._answer(False, node)
        return node

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.expr:
        self.generic_visit(node)
        decisive = isinstance(node.op, ast.Or)
        values = [each for each in node.values if not _is_constant(each, not decisive)]
        if any(_is_constant(each, decisive) for each in values):
            return ast.copy_location(ast.Constant(decisive), node)
        if len(values) > 1:
            return ast.copy_location(ast.BoolOp(node.op, values), node)
        return values[0] if values else ast.copy_location(ast.Constant(not decisive), node)

    def visit_If(self, node: ast.If) -> ast.stmt | list[ast.stmt]:
        self.generic_visit(node)
        if not isinstance(node.test, ast.Constant):
            return node
        kept = node.body if node.test.value else node.orelse
        return kept or ast.copy_location(ast.Pass(), node)

    def _answer(self, value: bool, node: ast.expr) -> ast.expr:
        self.count += 1
        return ast.copy_location(ast.Constant(value), node)


def cut_hooks(source: str) -> tuple[str, int]:
    """The source without its hooks, and how many questions that were."""
    cutter = HooksCut()
    tree = cutter.visit(ast.parse(source))
    return ast.unparse(tree), cutter.count


def make_bare_copy(folder: Path) -> int:
    """Copy our packages there, without hooks, and return how many were cut."""
    ignored = shutil.ignore_patterns("__pycache__")
    for package in _PACKAGES:
        shutil.copytree(ROOT / package, folder / package, ignore=ignored)
    count = 0
    for path in (found for pattern in _HOOKED for found in folder.glob(pattern)):
        cut, found_count = cut_hooks(path.read_text())
        if found_count:
            path.write_text(cut)
            count += found_count
    return count


def _name_of(node: ast.expr) -> str:
    match node:
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return name.lstrip("_") if name.islower() else name
        case _:
            return ""


def _is_constant(node: ast.expr, value: bool) -> bool:
    return isinstance(node, ast.Constant) and node.value is value
