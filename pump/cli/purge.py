"""`pump purge`: an empty queue."""

from __future__ import annotations

import sys

import click

from .options import app_option, gateway_option, json_option, yes_option


@click.command(short_help="Remove every message from a queue.")
@click.argument("queue")
@yes_option
@app_option
@gateway_option
@json_option
def purge(queue: str, *, yes: bool, app: str | None, gateway: str | None, as_json: bool) -> None:
    """Remove every message from QUEUE, those in flight included. There is no way back.

    On a terminal it asks first; elsewhere it does nothing without --yes.

    \b
    Examples:
      pump purge orders-dead
      pump purge orders-dead --yes --gateway local://
    """
    if not yes and not sys.stdin.isatty():
        raise click.UsageError(
            f"nothing was removed from {queue!r}: there is no terminal to ask on; add --yes to "
            "purge it"
        )

    from ..app import App
    from .console import print_json, stdout
    from .session import app_for, in_session, shown_gateway

    opened = app_for(app, gateway)
    if not yes:
        question = f"Remove every message from {queue!r} on {shown_gateway(opened)} for good?"
        click.confirm(question, abort=True, err=True)

    async def work(it: App) -> int:
        return await it.admin.purge(queue)

    removed = in_session(opened, work)
    if as_json:
        print_json({"queue": queue, "removed": removed})
    else:
        stdout().print(f"Removed {removed:,} message(s) from {queue!r}.", soft_wrap=True)
