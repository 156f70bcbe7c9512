"""`pump run`: an app, until it is told to stop."""

from __future__ import annotations

import click

from .exit_codes import ExitCode
from .options import counted_pair, gateway_option, log_format_option, log_level_option


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
@gateway_option
@log_level_option
@log_format_option
def run(
    target: str,
    *,
    reload: bool,
    until_empty: bool,
    concurrencies: tuple[tuple[str, int], ...],
    gateway: str | None,
    log_level: str,
    log_format: str,
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
      pump run app:app --until-empty            (a batch job)
      pump run app:app --reload                 (while developing)

    \b
    Exit codes:
      0 drained   1 unexpected error   2 wrong usage   3 the app cannot work
      4 broker unreachable or queue missing   5 too many unacceptable messages
      130 stopped by a second signal
    """
    from .running import RunOptions, run_app

    options = RunOptions(
        target=target,
        gateway=gateway,
        concurrencies=concurrencies,
        until_empty=until_empty,
        log_level=log_level,
        log_format=log_format,
    )
    if reload:
        from .reload import run_and_reload

        return run_and_reload(options)
    return run_app(options)
