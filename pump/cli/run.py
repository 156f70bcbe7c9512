"""`pump run`: an app, until it is told to stop."""

from __future__ import annotations

import click

from .exit_codes import ExitCode
from .options import (
    control_option,
    counted_pair,
    gateway_option,
    health_option,
    log_format_option,
    log_level_option,
    log_sample_option,
    telemetry_option,
)
from .process_count import process_count


@click.command(short_help="Run an app until it is told to stop.")
@click.argument("target", metavar="MODULE:APP")
@click.option(
    "--reload",
    is_flag=True,
    help="Drain and restart when a *.py file below this folder changes; for development.",
)
@click.option(
    "--until-empty", is_flag=True, help="Stop by itself, once the app's queues are empty."
)
@click.option(
    "--concurrency",
    "-c",
    "concurrencies",
    type=counted_pair,
    metavar="NAME=N",
    multiple=True,
    help="Run N handlers of subscription NAME at once; may be repeated.",
)
@click.option(
    "--processes",
    type=process_count,
    metavar="N",
    help="Run the app in N processes, to use N cores; auto (or 0) is as many as there are. One "
    "that dies is restarted, and SIGHUP restarts all, one after the other.",
)
@gateway_option
@health_option
@control_option
@telemetry_option
@click.option(
    "--ledger",
    metavar="PATH",
    help="Keep a row for every outcome, in a SQLite file (PATH.db) or in Parquet files in a folder "
    "(PATH); `pump ledger` shows it.",
)
@log_level_option
@log_format_option
@log_sample_option
def run(
    target: str,
    *,
    reload: bool,
    until_empty: bool,
    concurrencies: tuple[tuple[str, int], ...],
    processes: int | None,
    gateway: str | None,
    health: str | None,
    control: str | None,
    telemetry: tuple[str, ...],
    ledger: str | None,
    log_level: str,
    log_format: str,
    log_sample: int,
) -> ExitCode:
    """Run the app that MODULE:APP names, such as orders:app, until it is told to stop.

    The first SIGTERM or Ctrl-C drains: nothing more is received, what was started finishes, what
    was not is handed back. The second one stops at once. Logs go to stderr, one line a delivery;
    the summary at the end goes to stdout, or to the log when that is JSON.

    \b
    Examples:
      pump run app:app
      pump run shop.orders:app --concurrency orders=50 --log-level warning
      pump run app:app --gateway local:///var/lib/shop/queues
      pump run app:app --log-sample 100         (thousands of messages a second)
      pump run app:app --until-empty            (a batch job)
      pump run app:app --reload                 (while developing)
      pump run app:app --processes auto         (a process a core)
      pump run app:app --health 0.0.0.0:8080 --control 9091
      pump run app:app --ledger .pumphouse/ledger.db
      pump run app:app --telemetry otlp --telemetry prometheus:9464

    \b
    Exit codes:
      0 drained   1 unexpected error   2 wrong usage   3 the app cannot work
      4 broker unreachable or queue missing   5 too many unacceptable messages
      130 stopped by a second signal
    """
    from .run_options import RunOptions
    from .running import run_app

    options = RunOptions(
        target=target,
        gateway=gateway,
        concurrencies=concurrencies,
        until_empty=until_empty,
        health=health,
        control=control,
        telemetry=telemetry,
        ledger=ledger,
        log_level=log_level,
        log_format=log_format,
        log_sample=log_sample,
    )
    if reload and processes is not None and processes > 1:
        raise click.UsageError(
            "--reload runs one process, and drains it at each change; leave --processes out, or "
            "leave --reload out and send SIGHUP after a change"
        )
    if reload:
        from .reload import run_and_reload

        return run_and_reload(options)
    if processes is not None:
        from .supervising import run_processes

        return run_processes(options, processes)
    return run_app(options)
