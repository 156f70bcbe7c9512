"""Consoles and tables: colour on a terminal, plain and uncut when piped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import ceil
from typing import Any

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..errors import PumpError, leaves, text_of, trace_of
from ..exit_codes import Failure

_UNCUT = 10_000
"""A width no table reaches: a table that is piped is not cut."""


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


# Charts for a terminal: bars of any height in blocks, or in ASCII where there is nothing else.

BLOCKS = " ▁▂▃▄▅▆▇█"
ASCII = " .:#"


def bars(values: Sequence[float], *, height: int, levels: str = BLOCKS) -> list[str]:
    """Lines, from the top, of one column a value; the largest reaches the top.

    Whatever is more than nothing is seen.
    """
    steps = len(levels) - 1
    peak = max(values, default=0)
    fills = [ceil(value / peak * height * steps) if peak else 0 for value in values]
    return [
        "".join(levels[min(max(fill - row * steps, 0), steps)] for fill in fills)
        for row in reversed(range(height))
    ]


def rate(count: float, span_s: float) -> str:
    """How often, in the unit that makes a number of it."""
    per_s = count / span_s
    for factor, unit in ((1, "s"), (60, "min"), (3_600, "h")):
        if per_s * factor >= 1:
            return f"{_short(per_s * factor)}/{unit}"
    return f"{_short(per_s * 86_400)}/d"


def _short(number: float) -> str:
    return f"{number:,.0f}" if number >= 99.5 else f"{number:.1f}".removesuffix(".0")


def complain(error: Exception) -> None:
    """Say what happened: one line for an error of ours, the traceback for anything else."""
    for each in leaves(error):
        if isinstance(each, PumpError):
            print_error(text_of(each))
        elif isinstance(each, Failure):
            _print_details(each.details)
            print_error(text_of(each))
        else:
            _print_details(trace_of(each))
            print_error(f"unexpected {type(each).__name__}: {text_of(each)}")


def _print_details(details: str) -> None:
    if details:
        from ..observability.redaction import scrub

        click.echo(scrub(details.rstrip()), err=True)
