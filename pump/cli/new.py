"""`pump new`: an app to start from."""

from __future__ import annotations

import re
import shlex
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from string import Template

import click

from ..exit_codes import ExitCode, Failure
from ..gateway_url import OUR_PACKAGES
from .console import stdout


@click.command(short_help="Start an app: code, a test that passes, a README.")
@click.argument("name")
@click.option(
    "--dir",
    "folder",
    type=click.Path(file_okay=False, path_type=Path),
    help="The folder to put it in. Default: a new one called NAME.",
)
def new(name: str, folder: Path | None) -> None:
    """Make an app called NAME: a command, a handler, a subscription with a dead-letter queue.

    Comes with a test that passes. No file is ever overwritten.

    \b
    Examples:
      pump new greetings
      pump new greetings --dir .
    """
    scaffold(name, folder or Path(name))


# Scaffolding: the files of a new app, from the templates in `scaffold/`.

_TEMPLATES = {
    "app.py": "app.py.tmpl",
    "tests/test_app.py": "test_app.py.tmpl",
    "README.md": "README.md.tmpl",
    "pyproject.toml": "pyproject.toml.tmpl",
    ".gitignore": "gitignore.tmpl",
}
"""Each file of a new app. None may be called as our packages are: it would stand before them."""
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")


def scaffold(name: str, folder: Path) -> None:
    """Write the app's files and print what to do next; all of them, or none."""
    if not _NAME.fullmatch(name):
        raise click.UsageError(
            f"{name!r} cannot be an app's name; use letters, digits, - and _, a letter first"
        )
    if name in OUR_PACKAGES:
        raise click.UsageError(f"{name!r} is the name of a package of Pumphouse's; choose another")
    taken = [path for path in _TEMPLATES if (folder / path).exists()]
    if taken:
        raise Failure(
            f"{folder} has {', '.join(taken)} already, and nothing was written",
            remedy="choose another name, or another --dir",
            exit_code=ExitCode.USAGE,
        )
    _write(folder, _filled(name))
    _print_next_steps(name, folder)


def _filled(name: str) -> dict[str, str]:
    values = {
        "name": name,
        "queue": name.lower().replace("_", "-"),
        "version": version("pumphouse"),
    }
    source = files(__package__) / "scaffold"
    return {
        path: Template((source / template).read_text(encoding="utf-8")).substitute(values)
        for path, template in _TEMPLATES.items()
    }


def _write(folder: Path, contents: dict[str, str]) -> None:
    try:
        for path, content in contents.items():
            file = folder / path
            file.parent.mkdir(parents=True, exist_ok=True)
            with file.open("x", encoding="utf-8") as opened:
                opened.write(content)
    except OSError as error:
        raise Failure(
            f"cannot write {error.filename}: {error.strerror}",
            remedy="choose a --dir you may write to",
            exit_code=ExitCode.USAGE,
        ) from None


def _print_next_steps(name: str, folder: Path) -> None:
    queue = name.lower().replace("_", "-")
    steps = [
        *([f"cd {shlex.quote(str(folder))}"] if folder.resolve() != Path.cwd() else []),
        "pytest",
        "pump run app:app",
        f"""pump send {queue} '{{"name": "Ada"}}'        (in another terminal)""",
    ]
    console = stdout()
    console.print(f"Made {name} in {folder}: {', '.join(_TEMPLATES)}", soft_wrap=True)
    console.print("\nNext:")
    for step in steps:
        console.print(f"  {step}", soft_wrap=True)
