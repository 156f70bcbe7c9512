"""Public names do not break: what a package lists, and what pages and samples import, is pinned.

A name that is gone on purpose needs an alias with a deprecation note; a new one is added by
`python -m tests.architecture.test_public_names`.
"""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Iterator
from importlib import import_module

from .source import PACKAGES, ROOT, sources

PINNED = ROOT / "tests" / "architecture" / "public_names.txt"
PRIVATE = "gateways.sqs_server."
"""Packages whose lists serve their siblings; `SqsServer` and the configuration are public."""
_FENCE = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


def public_names() -> set[str]:
    """`module:name` of everything that a user may import."""
    return {each for each in (*_listed(), *_shown()) if each.partition(".")[0] in PACKAGES}


def _listed() -> Iterator[str]:
    """What packages list in `__all__`."""
    for source in sources(*PACKAGES):
        if "._" in source.module or source.module.startswith(PRIVATE):
            continue
        for node in source.tree.body:
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
                yield from (f"{source.module}:{name}" for name in ast.literal_eval(node.value))


def _shown() -> Iterator[str]:
    """What pages and samples import."""
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))):
        for block in _FENCE.findall(page.read_text(encoding="utf-8")):
            yield from _imported(textwrap.dedent(block))
    for source in sources("samples"):
        yield from _imported(source.text)


def _imported(text: str) -> Iterator[str]:
    try:
        tree = ast.parse(text)
    except SyntaxError:  # A page may show a part of a program.
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.level == 0:
            yield from (f"{node.module}:{alias.name}" for alias in node.names)


def pinned() -> list[str]:
    return PINNED.read_text(encoding="utf-8").split()


def _is_there(name: str) -> bool:
    module, _, attribute = name.partition(":")
    try:
        home = import_module(module)
    except ModuleNotFoundError:
        return False
    if hasattr(home, attribute):
        return True
    try:
        import_module(f"{module}.{attribute}")
    except ModuleNotFoundError:
        return False
    return True


def _needs_spark(name: str) -> bool:
    return name.startswith("pump.spark")


def test_every_pinned_name_is_there() -> None:
    missing = [each for each in pinned() if not _needs_spark(each) and not _is_there(each)]

    assert missing == []


def test_every_public_name_is_pinned() -> None:
    assert sorted(public_names() - set(pinned())) == [], f"run python -m {__name__}"


def test_when_a_name_is_gone_then_it_is_missed() -> None:
    assert not _is_there("pump:Appp")
    assert not _is_there("pump.nowhere:App")
    assert _is_there("pump:App")


if __name__ == "__main__":
    PINNED.write_text("\n".join(sorted({*public_names(), *pinned()})) + "\n", encoding="utf-8")
