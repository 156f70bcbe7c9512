"""`pump spark`: the commands that run on a Spark cluster; each is in a module of its own."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import current_thread, main_thread
from typing import Any, ClassVar, TypeVar

import click

from .options import pair
from .root import LazyGroup


class SparkGroup(LazyGroup):
    """The commands, each in a module of its own."""

    commands_help: ClassVar = {
        "run": "Run an app in Spark tasks.",
        "report": "Analyse outcomes and dead letters.",
        "redrive": "Send selected dead letters again.",
    }
    prefix = "spark_"


@contextmanager
def _sigterm_as_ctrl_c() -> Iterator[None]:
    """Where nothing better is done with SIGTERM, as while Spark starts, it ends the command as
    Ctrl-C does: with Spark's JVM and its folder gone.
    """
    if current_thread() is not main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@click.group(cls=SparkGroup, short_help="Run, report and redrive on a Spark cluster.")
@click.pass_context
def spark(context: click.Context) -> None:
    """Run an app, or analyse what became of its messages, on Spark.

    \b
    Needs: pip install 'pumphouse[spark]'. A Java 17 or 21 is used when there is one; otherwise
    the one that comes with it.

    \b
    Examples:
      pump spark run orders:app --gateway sqs:// --until-empty
      pump spark report --ledger .pumphouse/ledger --out report
      pump spark redrive orders-dead --to orders --where "type = 'PlaceOrder'" --dry-run
    """
    context.with_resource(_sigterm_as_ctrl_c())


# The options that every `pump spark` command shares: which cluster, and how it is set up.

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
