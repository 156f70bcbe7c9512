"""Consoles and tables: colour on a terminal, plain and uncut when piped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

_UNCUT = 10_000
"""A width no table reaches: whoever pipes a table wants all of it."""


def stdout() -> Console:
    """Where results go."""
    return _plain_unless_terminal(Console(highlight=False, markup=False, emoji=False))


def stderr() -> Console:
    """Where everything goes that is not the result."""
    return _plain_unless_terminal(Console(stderr=True, highlight=False, markup=False, emoji=False))


def print_error(message: str) -> None:
    """One line, `error: …`, on stderr."""
    _print_labelled("error", "bold red", message)


def print_warning(message: str) -> None:
    """One line, `warning: …`, on stderr."""
    _print_labelled("warning", "bold yellow", message)


def print_json(value: Any) -> None:
    """A JSON document on stdout, the same on a terminal and in a pipe."""
    import json

    click.echo(json.dumps(value, indent=2, ensure_ascii=False))


def print_json_line(value: Any) -> None:
    """A JSON document on one line, for output that goes on."""
    import json

    click.echo(json.dumps(value, ensure_ascii=False))


def table(
    columns: Sequence[str], rows: Iterable[Sequence[str | Text]], *, right: Iterable[str] = ()
) -> Table:
    """A table of text; `right` names the columns of numbers."""
    made = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
    to_the_right = set(right)
    for column in columns:
        justify = "right" if column in to_the_right else "left"
        made.add_column(column, justify=justify, overflow="fold")  # type: ignore[arg-type]
    for row in rows:
        made.add_row(*(Text(cell) if isinstance(cell, str) else cell for cell in row))
    return made


def _plain_unless_terminal(console: Console) -> Console:
    if not console.is_terminal:
        console.width = _UNCUT
    return console


def _print_labelled(label: str, style: str, message: str) -> None:
    from ..observability.redaction import scrub

    # Errors of SDKs may quote a URL with its password.
    line = Text.assemble((f"{label}: ", style), printable(scrub(message)))
    stderr().print(line, soft_wrap=True)


def printable(text: str) -> str:
    """The text on one line, without characters that would move a terminal's cursor."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
