"""Shadowing: a user's own `handlers.py` stands in front of our package of that name."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

OUR_PACKAGES = ("pump", "gateways", "handlers")


def shadowing_files(search_path: Iterable[str] | None = None) -> dict[str, Path]:
    """The files that Python would import instead of our packages, by package name.

    Looks where the interpreter would look, in its order, up to the place ours lie in.
    """
    ours = Path(__file__).resolve().parent.parent
    found: dict[str, Path] = {}
    for entry in sys.path if search_path is None else search_path:
        folder = Path(entry or ".").resolve()
        if folder == ours:
            break
        for name in OUR_PACKAGES:
            for candidate in (folder / name / "__init__.py", folder / f"{name}.py"):
                if name not in found and candidate.is_file():
                    found[name] = candidate
    return found
