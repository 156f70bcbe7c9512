"""The options that every `pump spark` command shares: which cluster, and how it is set up."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from .options import pair

_F = TypeVar("_F", bound=Callable[..., Any])


def spark_options(command: _F) -> _F:
    """Give a command `--master`, `--conf` and `--py-files`; it is called with `master`, `conf`
    and `py_files`.
    """
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


_OPTIONS = [
    click.option(
        "--master",
        default="local[*]",
        metavar="URL",
        help="The Spark master, such as spark://host:7077 or local[4]. Default: local[*], all "
        "cores of this machine.",
    ),
    click.option(
        "--conf",
        type=pair,
        metavar="NAME=VALUE",
        multiple=True,
        help="A setting of Spark's; may be repeated.",
    ),
    click.option(
        "--py-files",
        metavar="PATH",
        multiple=True,
        help="A .py, .zip or .egg that the workers import from; may be repeated.",
    ),
]
