"""`pump queues`: what is in every queue, once or again and again."""

from __future__ import annotations

from datetime import timedelta

import click

from .options import app_option, duration, gateway_option, json_option


@click.command(short_help="Show what is in every queue.")
@click.option("--watch", "-w", is_flag=True, help="Look again and again, until Ctrl-C.")
@click.option(
    "--every",
    type=duration,
    metavar="DURATION",
    default="1s",
    help="How often to look. Default: 1s.",
)
@app_option
@gateway_option
@json_option
def queues(
    *, watch: bool, every: timedelta, app: str | None, gateway: str | None, as_json: bool
) -> None:
    """Show every queue: how many messages wait, are in flight or delayed, and the oldest's age.

    \b
    Examples:
      pump queues
      pump queues --watch
      pump queues --json | jq '.[] | select(.visible > 1000)'

    With --watch and --json each look is one line.
    """
    if watch and not every:
        raise click.UsageError("--every 0 would never rest; use 100ms or more")

    from .session import app_for, in_session
    from .watching import print_queues, watch_queues

    opened = app_for(app, gateway)
    if not watch:
        stats = in_session(opened, lambda it: it.admin.queues())
        print_queues(stats, as_json=as_json)
        return
    try:
        in_session(opened, lambda it: watch_queues(it, every=every, as_json=as_json))
    except KeyboardInterrupt:
        return
