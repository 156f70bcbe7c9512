"""The packages as a whole: who imports whom, what stands apart, which names are taken twice.

Everything here is a pure function of sources, so that it can be shown to find what it looks for.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import attrs

from .rules import VENDORS
from .source import Source

SMALL = 150
"""Lines. A larger module may stand by itself, whoever imports it."""
FRONT_DOOR = "pump.app"
"""`App` hands itself, when asked, to what stands beside the pump: the one way back."""


@attrs.frozen(kw_only=True)
class Edge:
    """One module that imports another."""

    importer: str
    imported: str
    is_at_import_time: bool


def edges(sources: Sequence[Source]) -> list[Edge]:
    """Every import of one of these modules by another, but for those that only types need."""
    modules = {source.module for source in sources}
    found: dict[tuple[str, str], bool] = {}
    for source in sources:
        for each in source.imports:
            if each.is_for_types:
                continue
            name = each.name if each.name in modules else each.name.rpartition(".")[0]
            if name in modules and name != source.module:
                pair = source.module, name
                found[pair] = found.get(pair, False) or each.is_at_import_time
    return [
        Edge(importer=importer, imported=imported, is_at_import_time=at_import_time)
        for (importer, imported), at_import_time in found.items()
    ]


def package_of(module: str) -> str:
    """The package that a module counts to: the folder below `pump`, `gateways` or `handlers`; a
    module that lies directly there stands for itself.
    """
    return ".".join(module.split(".")[:2])


def cycles(sources: Sequence[Source]) -> list[list[str]]:
    """Packages that import each other, however late they do it."""
    graph = defaultdict(set)
    for edge in edges(sources):
        importer, imported = package_of(edge.importer), package_of(edge.imported)
        is_front_door = importer == FRONT_DOOR and not edge.is_at_import_time
        if importer != imported and imported.count(".") and not is_front_door:
            graph[importer].add(imported)
    return [sorted(each) for each in _components(graph) if len(each) > 1]


def only_for_a_sibling(sources: Sequence[Source], tested: Iterable[str] = ()) -> list[str]:
    """Small modules that one module of their own package alone imports, and when it is imported:
    their place is in that one. Left out is what has tests of its own and is a pure machine, or
    needs no vendor's package where its sibling does.
    """
    vendors = {source.module: _vendors(source) for source in sources}
    importers: dict[str, list[Edge]] = defaultdict(list)
    for edge in edges(sources):
        importers[edge.imported].append(edge)
    tested = set(tested)
    return [
        f"{source.module} ({len(source.lines)} lines): only {edge.importer} imports it"
        for source in sources
        if len(source.lines) < SMALL and not source.path.endswith("__init__.py")
        for edge in _the_only(importers[source.module])
        if edge.is_at_import_time
        and _folder(edge.importer) == _folder(source.module)
        and not (
            source.module in tested
            and (_is_pure(source) or vendors[edge.importer] - vendors[source.module])
        )
        and not _is_command(source)
    ]


def single_importers(sources: Sequence[Source]) -> list[str]:
    """Modules that exactly one other imports."""
    importers: dict[str, set[str]] = defaultdict(set)
    for edge in edges(sources):
        importers[edge.imported].add(edge.importer)
    return sorted(module for module, found in importers.items() if len(found) == 1)


def shared_class_names(sources: Iterable[Source]) -> dict[str, list[str]]:
    """Names that more than one class has, with the modules of those."""
    homes: dict[str, list[str]] = defaultdict(list)
    for source in sources:
        for node in ast.walk(source.tree):
            if isinstance(node, ast.ClassDef):
                homes[node.name].append(source.module)
    return {name: found for name, found in sorted(homes.items()) if len(found) > 1}


def shared_within_a_package(sources: Iterable[Source]) -> list[str]:
    """Class names that are taken twice in one package."""
    return [
        f"{name}: {', '.join(found)}"
        for name, found in shared_class_names(sources).items()
        if len({package_of(each) for each in found if each.count(".") > 1})
        < len([each for each in found if each.count(".") > 1])
    ]


def imported_by(sources: Iterable[Source]) -> set[str]:
    """Every dotted name that these sources import, and the modules that hold them."""
    names = {each.name for source in sources for each in source.imports}
    return names | {name.rpartition(".")[0] for name in names}


def _the_only(found: Sequence[Edge]) -> Sequence[Edge]:
    return found if len(found) == 1 else ()


def _folder(module: str) -> str:
    return module.rpartition(".")[0]


def _is_pure(source: Source) -> bool:
    """It awaits nothing: a decision, a table, or a state machine."""
    return not any(isinstance(node, ast.AsyncFunctionDef) for node in ast.walk(source.tree))


def _vendors(source: Source) -> set[str]:
    """The vendors' packages that it needs to be imported."""
    return {each.parts[0] for each in source.imports if each.is_at_import_time} & VENDORS


def _is_command(source: Source) -> bool:
    """The command line loads a command by its module's name, when it is asked for."""
    return source.path.startswith("pump/cli/") and any(
        each.parts[0] == "click" for each in source.imports
    )


def _components(graph: Mapping[str, set[str]]) -> Iterator[list[str]]:
    """Strongly connected components (Tarjan)."""
    index: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []

    def visit(node: str) -> Iterator[Any]:
        index[node] = lowest[node] = len(index)
        stack.append(node)
        for following in sorted(graph.get(node, ())):
            if following not in index:
                yield from visit(following)
                lowest[node] = min(lowest[node], lowest[following])
            elif following in stack:
                lowest[node] = min(lowest[node], index[following])
        if lowest[node] == index[node]:
            place = stack.index(node)
            component = stack[place:]
            del stack[place:]
            yield component

    for start in sorted(graph):
        if start not in index:
            yield from visit(start)
