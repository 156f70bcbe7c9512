"""`pump spill`: rejected messages that wait on disk, because their queue was out of reach."""

from __future__ import annotations

from pathlib import Path

import click

from .exit_codes import ExitCode
from .options import app_option, gateway_option, json_option

path_option = click.option(
    "--path",
    type=click.Path(dir_okay=False, path_type=Path),
    help="The spill's file. Default: the app's own, else .pumphouse/spill.db.",
)


@click.group(short_help="Show or send what could not be dead-lettered.")
def spill() -> None:
    """Show or send rejected messages that could not be sent to their dead-letter queue.

    A running app sends them by itself once the queue can be reached again; `flush` does so now.

    \b
    Examples:
      pump spill ls
      pump spill flush --app app:app
      pump spill flush --path /var/lib/shop/spill.db --gateway local:///var/lib/shop/queues
    """


@spill.command("ls")
@path_option
@app_option
@json_option
def ls(*, path: Path | None, app: str | None, as_json: bool) -> None:
    """List what waits, oldest first."""
    from .spilling import print_spilled, spill_for

    print_spilled(spill_for(path, app), as_json=as_json)


@spill.command("flush")
@path_option
@app_option
@gateway_option
@json_option
def flush(*, path: Path | None, app: str | None, gateway: str | None, as_json: bool) -> ExitCode:
    """Send what waits to the queues it was meant for.

    A message is removed only after its queue has accepted it. Exit code 4 when some remain.
    """
    from .spilling import flush_spilled

    return flush_spilled(path, app, gateway, as_json=as_json)
