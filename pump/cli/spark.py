"""`pump spark`: the commands that run on a Spark cluster; each is in a module of its own."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from threading import current_thread, main_thread
from typing import ClassVar

import click

from .lazy_group import LazyGroup


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
