"""Complaints: an error as the line, or lines, that end a command."""

from __future__ import annotations

import traceback

import click

from ..errors import PumpError, text_of
from ..observability.redaction import scrub
from .console import print_error
from .failure import Failure


def complain(error: Exception) -> None:
    """Say what happened: one line for an error of ours, the traceback for anything else."""
    for each in _leaves(error):
        if isinstance(each, PumpError):
            print_error(text_of(each))
        elif isinstance(each, Failure):
            _print_details(each.details)
            print_error(text_of(each))
        else:
            _print_details("".join(traceback.format_exception(each)))
            print_error(f"unexpected {type(each).__name__}: {text_of(each)}")


def _print_details(details: str) -> None:
    if details:
        click.echo(scrub(details.rstrip()), err=True)


def _leaves(error: Exception) -> list[Exception]:
    if isinstance(error, ExceptionGroup):
        return [leaf for part in error.exceptions for leaf in _leaves(part)]
    return [error]
