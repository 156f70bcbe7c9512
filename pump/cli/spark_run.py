"""`pump spark run`: an app in Spark tasks, slice by slice."""

from __future__ import annotations

from datetime import timedelta

import click

from .exit_codes import ExitCode
from .options import (
    counted_pair,
    duration,
    gateway_option,
    log_format_option,
    log_level_option,
    log_sample_option,
)
from .spark_options import spark_options


@click.command(short_help="Run an app in Spark tasks.")
@click.argument("target", metavar="MODULE:APP")
@click.option(
    "--until-empty", is_flag=True, help="Stop by itself, once the app's queues are empty."
)
@click.option(
    "--for",
    "run_for",
    type=duration,
    metavar="DURATION",
    help="Stop by itself after this long, such as 1h.",
)
@click.option(
    "--ledger",
    metavar="FOLDER",
    help="Where the outcomes are written before their messages are removed: a folder that every "
    "machine sees. Default: the app's own, then .pumphouse/ledger.",
)
@click.option(
    "--tasks",
    type=click.IntRange(min=1),
    metavar="N",
    help="At most so many tasks at once. Default: as many as Spark has room for.",
)
@click.option(
    "--slice-messages",
    type=click.IntRange(min=1),
    default=50_000,
    show_default=True,
    metavar="N",
    help="A task ends after so many messages.",
)
@click.option(
    "--slice-time",
    type=duration,
    default="1m",
    show_default=True,
    metavar="DURATION",
    help="A task receives for at most so long.",
)
@click.option(
    "--flush",
    type=click.IntRange(min=1),
    default=200,
    show_default=True,
    metavar="N",
    help="At most so many messages of a subscription are in a task's hands: what one that is "
    "killed may have handled in vain.",
)
@click.option(
    "--concurrency",
    "-c",
    "concurrencies",
    type=counted_pair,
    metavar="NAME=N",
    multiple=True,
    help="Run N handlers of subscription NAME at once in each task; may be repeated.",
)
@gateway_option
@spark_options
@log_level_option
@log_format_option
@log_sample_option
def run(
    target: str,
    *,
    until_empty: bool,
    run_for: timedelta | None,
    ledger: str | None,
    tasks: int | None,
    slice_messages: int,
    slice_time: timedelta,
    flush: int,
    concurrencies: tuple[tuple[str, int], ...],
    gateway: str | None,
    master: str,
    conf: tuple[tuple[str, str], ...],
    py_files: tuple[str, ...],
    log_level: str,
    log_format: str,
    log_sample: int,
) -> ExitCode:
    """Run the app that MODULE:APP names in Spark tasks, until it is told to stop.

    Each task is a bounded run of the ordinary pump: receive, handle, write the outcome durably,
    then settle. The depth of the queues says how many tasks a slice has. A task that dies has its
    messages come again; none is lost. The gateway must be one that all machines reach, and the
    ledger a folder that all of them see.

    The first SIGTERM or Ctrl-C drains: no slice is started any more, the tasks finish what they
    have. The second one kills the tasks; what they held comes again when its leases end.

    \b
    Examples:
      pump spark run orders:app --until-empty
      pump spark run orders:app --gateway sqs://eu-west-1 --for 1h
      pump spark run orders:app --master spark://head:7077 --ledger /mnt/shop/ledger
      pump spark run orders:app --master 'local[4]' --concurrency orders=50 --flush 500
      pump spark run orders:app --py-files handlers.zip --conf spark.executor.memory=2g

    \b
    Exit codes:
      0 drained   1 Spark gave a slice up, or an unexpected error   2 wrong usage
      3 the app cannot work   4 broker unreachable or queue missing
      5 too many unacceptable messages   130 stopped by a second signal
    """
    if until_empty and run_for is not None:
        raise click.UsageError("--until-empty and --for exclude each other")
    from ..spark.run.options import SparkRunOptions
    from ..spark.session import SparkOptions
    from .log_setup import set_up_logging
    from .spark_running import SparkCommand, run_app_on_spark

    format = set_up_logging(log_level, log_format, sample=log_sample)
    command = SparkCommand(
        target=target,
        gateway=gateway,
        concurrencies=concurrencies,
        session=SparkOptions(
            master=master,
            app_name=f"pumphouse {target}",
            conf=dict(conf),
            py_files=py_files,
            is_retrying=True,
        ),
        log_level=log_level,
        log_format=format,
        log_sample=log_sample,
    )
    return run_app_on_spark(
        command,
        SparkRunOptions(
            until_empty=until_empty,
            run_for=run_for,
            ledger=ledger,
            tasks=tasks,
            slice_messages=slice_messages,
            slice_time=slice_time,
            flush=flush,
            prepare=command.prepare,
        ),
    )
