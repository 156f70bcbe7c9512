"""`pump send`: messages to a queue, from the command line, a file or a pipe."""

from __future__ import annotations

from datetime import timedelta

import click

from .options import app_option, duration, gateway_option, pair


@click.command(short_help="Send messages to a queue.")
@click.argument("queue")
@click.argument("body", required=False)
@click.option("--type", "-t", "type_", default="", help="The request's type, such as PlaceOrder.")
@click.option(
    "--header",
    "-H",
    "headers",
    type=pair,
    metavar="NAME=VALUE",
    multiple=True,
    help="A header of your own; may be repeated.",
)
@click.option("--group", help="Ordering key: messages of one group are handled in order.")
@click.option(
    "--delay",
    type=duration,
    metavar="DURATION",
    default="0",
    help="Deliver no earlier, such as 5s or 2m.",
)
@click.option("--dedup-id", help="Two sends with one such id, soon after another, are one message.")
@click.option("--correlation-id", help="Ties the message to a conversation.")
@click.option(
    "--content-type",
    help="What the body is. Default: application/json, and the body is checked to be JSON; "
    "naming a type sends any body as it is.",
)
@click.option("--count", "-n", type=click.IntRange(min=1), default=1, help="Send it N times.")
@click.option("--lines", is_flag=True, help="Send each line of the input as a message.")
@click.option("--create", is_flag=True, help="Make the queue when there is none.")
@app_option
@gateway_option
def send(
    queue: str,
    body: str | None,
    *,
    type_: str,
    headers: tuple[tuple[str, str], ...],
    group: str | None,
    delay: timedelta,
    dedup_id: str | None,
    correlation_id: str | None,
    content_type: str | None,
    count: int,
    lines: bool,
    create: bool,
    app: str | None,
    gateway: str | None,
) -> None:
    """Send BODY to QUEUE and print the id of each message once the broker has it.

    BODY is the text itself, @FILE for a file's content, or - for the standard input.

    \b
    Examples:
      pump send greetings '{"name": "Ada"}'
      pump send orders @order.json --type PlaceOrder --delay 5s
      pump send orders '{"id": 1}' --header tenant=blue --group customer-7
      generate-orders | pump send orders --lines
      pump send notes 'not JSON at all' --content-type text/plain
      pump send greetings '{"name": "Ada"}' --app app:app     (the app's gateway; makes its queues)
    """
    if lines and count > 1:
        raise click.UsageError("--lines and --count exclude each other")
    if body is None and not lines:
        raise click.UsageError("give a BODY: the text, @FILE, or - for the standard input")

    from .sending import Letter, send_all

    letter = Letter(
        queue=queue,
        type=type_,
        headers=dict(headers),
        group=group,
        delay=delay,
        deduplication_id=dedup_id,
        correlation_id=correlation_id,
        content_type=content_type,
    )
    send_all(
        letter, body or "-", count=count, by_line=lines, create=create, app=app, gateway=gateway
    )
