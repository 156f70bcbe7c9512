"""`pump peek`: the next messages of a queue, left where they are."""

from __future__ import annotations

import click

from .options import app_option, gateway_option, json_option


@click.command(short_help="Look at messages without receiving them.")
@click.argument("queue")
@click.option(
    "--max",
    "-n",
    "max_count",
    type=click.IntRange(min=1),
    default=10,
    help="At most this many. Default: 10.",
)
@click.option("--body", is_flag=True, help="Print bodies too; JSON output always has them.")
@app_option
@gateway_option
@json_option
def peek(
    queue: str,
    *,
    max_count: int,
    body: bool,
    app: str | None,
    gateway: str | None,
    as_json: bool,
) -> None:
    """Look at the next messages of QUEUE: no lease, no attempt, nothing changes.

    Of a dead-letter queue it also shows why each message was rejected.

    \b
    Examples:
      pump peek orders
      pump peek orders-dead --body --max 3
      pump peek orders-dead --json | jq -r '.[].headers.rejectionMessage'
    """
    from .peeking import print_messages
    from .session import app_for, in_session

    opened = app_for(app, gateway)
    messages = in_session(opened, lambda it: it.admin.peek(queue, max_count=max_count))
    print_messages(messages, queue=queue, with_bodies=body, as_json=as_json)
