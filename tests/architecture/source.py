"""A Python source file as the architecture tests see it: path, tree, imports."""

import ast
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path, PurePosixPath

import attrs

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("pump", "gateways", "handlers")
TREES = (*PACKAGES, "tests", "samples", "benchmarks")


@attrs.frozen(kw_only=True)
class Violation:
    """One broken rule, printed as `path:line: message`."""

    path: str
    line: int
    message: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.message}"


@attrs.frozen(kw_only=True)
class Import:
    """One imported dotted name, relative imports resolved."""

    name: str
    line: int
    is_relative: bool
    is_at_import_time: bool
    is_for_types: bool = False

    @property
    def parts(self) -> tuple[str, ...]:
        return tuple(self.name.split("."))


@attrs.define(slots=False)
class Source:
    """One module: its path from the repository root and its text."""

    path: str
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text, self.path)

    @cached_property
    def lines(self) -> list[str]:
        return self.text.splitlines()

    @property
    def package(self) -> tuple[str, ...]:
        """The package whose names a single leading dot refers to."""
        return PurePosixPath(self.path).parts[:-1]

    @property
    def module(self) -> str:
        """Its dotted name; a package is named by its folder."""
        return ".".join(PurePosixPath(self.path).with_suffix("").parts).removesuffix(".__init__")

    @property
    def top(self) -> str:
        return PurePosixPath(self.path).parts[0]

    def line(self, number: int) -> str:
        return self.lines[number - 1]

    def violation(self, line: int, message: str) -> Violation:
        return Violation(path=self.path, line=line, message=message)

    @cached_property
    def imports(self) -> list[Import]:
        return list(self._imports(self.tree, at_import_time=True))

    def _imports(self, node: ast.AST, *, at_import_time: bool) -> Iterator[Import]:
        for child in ast.iter_child_nodes(node):
            yield from self._named_by(child, at_import_time)
            if isinstance(child, ast.If) and _is_type_checking(child.test):
                for statement in child.body:
                    for found in self._named_by(statement, False):
                        yield attrs.evolve(found, is_for_types=True)
                for statement in child.orelse:
                    yield from self._named_by(statement, at_import_time)
                    yield from self._imports(statement, at_import_time=at_import_time)
                continue
            is_deferred = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            yield from self._imports(child, at_import_time=at_import_time and not is_deferred)

    def _named_by(self, node: ast.AST, at_import_time: bool) -> Iterator[Import]:
        names: list[str] = []
        is_relative = False
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            is_relative = node.level > 0
            base = ".".join(self._base(node))
            names = [f"{base}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Call):
            names = _dynamically_imported(node)
        for name in names:
            yield Import(
                name=name,
                line=getattr(node, "lineno", 1),
                is_relative=is_relative,
                is_at_import_time=at_import_time,
            )

    def _base(self, node: ast.ImportFrom) -> list[str]:
        module = node.module.split(".") if node.module else []
        if node.level == 0:
            return module
        return [*self.package[: len(self.package) - node.level + 1], *module]


def _is_type_checking(test: ast.expr) -> bool:
    return _dotted(test) in {"TYPE_CHECKING", "typing.TYPE_CHECKING"}


def _dynamically_imported(call: ast.Call) -> list[str]:
    is_import = _dotted(call.func) in {
        "__import__",
        "import_module",
        "importlib.import_module",
    }
    if is_import and call.args and isinstance(call.args[0], ast.Constant):
        name = call.args[0].value
        if isinstance(name, str) and not name.startswith("."):
            return [name]
    return []


def _dotted(node: ast.expr) -> str:
    """`a.b.c` as it is written; empty for what is no plain name."""
    names: list[str] = []
    while isinstance(node, ast.Attribute):
        names.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return ""
    return ".".join([node.id, *reversed(names)])


def sources(*trees: str) -> Iterator[Source]:
    """Every Python file below the given top-level folders, in a stable order; one at a time, since
    the trees of all of them would be half a gigabyte for the collector to walk through.
    """
    for tree in trees:
        for path in sorted((ROOT / tree).rglob("*.py")):
            if "__pycache__" not in path.parts:
                yield Source(path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8"))
