"""`pump new`: an app to start from."""

from __future__ import annotations

from pathlib import Path

import click


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
    from .scaffolding import scaffold

    scaffold(name, folder or Path(name))
