"""Programs called `java` that answer as a Java of some version does, or do not."""

from __future__ import annotations

from pathlib import Path

ANSWER = """#!/bin/sh
echo 'openjdk version "{version}" 2025-04-15' >&2
echo 'OpenJDK Runtime Environment' >&2
"""


def a_java(home: Path, version: str = "17.0.15") -> Path:
    """A home whose `bin/java` says that it is of this version."""
    return a_program(home, ANSWER.format(version=version))


def a_program(home: Path, text: str) -> Path:
    """A home whose `bin/java` is this script."""
    (home / "bin").mkdir(parents=True)
    java = home / "bin" / "java"
    java.write_text(text)
    java.chmod(0o755)
    return home


def with_path(*homes: Path) -> dict[str, str]:
    """An environment with the `bin` of each of these on the path, and nothing else."""
    return {"PATH": ":".join(str(home / "bin") for home in homes)}
