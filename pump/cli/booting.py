"""Booting: the command line of a Python that runs a part of ours as a process of its own."""

from __future__ import annotations

import sys
from pathlib import Path

_ROOT = str(Path(__file__).resolve().parents[2])


def boot_command(module: str) -> tuple[str, ...]:
    """A command that calls `main` of the module.

    With -P and our folder last, a pump.py in the working folder is not taken for us.
    """
    program = f"import sys; sys.path.append({_ROOT!r}); from {module} import main; main()"
    return (sys.executable, "-P", "-c", program)
