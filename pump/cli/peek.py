"""`pump peek`: the next messages of a queue, left where they are."""

from __future__ import annotations

import base64
from collections.abc import Sequence

import click
from rich.text import Text

from ..clock import SYSTEM_CLOCK, format_duration
from ..headers import ATTEMPTS, REJECTION_DETAIL, REJECTION_REASON
from ..message import Message
from .console import print_json, printable, stdout, table
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
    from .session import app_for, in_session

    opened = app_for(app, gateway)
    messages = in_session(opened, lambda it: it.admin.peek(queue, max_count=max_count))
    print_messages(messages, queue=queue, with_bodies=body, as_json=as_json)


# Peeking: messages on a screen, or as JSON.


def print_messages(
    messages: Sequence[Message], *, queue: str, with_bodies: bool, as_json: bool
) -> None:
    """Print messages in the order they would be received in."""
    if as_json:
        print_json([message_as_json(message) for message in messages])
        return
    console = stdout()
    if not messages:
        console.print(f"Nothing is available in {queue!r}.", soft_wrap=True)
        return
    if not with_bodies:
        console.print(_overview(messages))
        return
    for message in messages:
        console.print(Text(printable(f"{message.id}  {message.type}".rstrip()), "bold"))
        for name, value in sorted(message.headers.items()):
            console.print(f"  {printable(name)}: {printable(value)}", soft_wrap=True)
        console.print(shown_body(message.body), soft_wrap=True)


def message_as_json(message: Message) -> dict[str, object]:
    """Every field that is set; a body that is not text stands under `body_base64`."""
    fields: dict[str, object] = {
        "id": message.id,
        "type": message.type,
        "content_type": message.content_type,
        "correlation_id": message.correlation_id,
        "reply_to": message.reply_to,
        "group": message.group,
        "deduplication_id": message.deduplication_id,
        "created_at_s": message.created_at_s,
        "headers": dict(message.headers),
    }
    try:
        fields["body"] = message.body.decode()
    except UnicodeDecodeError:
        fields["body_base64"] = base64.b64encode(message.body).decode()
    return {name: value for name, value in fields.items() if value is not None}


def shown_body(body: bytes) -> str:
    """A body as text, line by line, with nothing in it that moves a cursor."""
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return f"({len(body)} bytes that are not text)"
    return "\n".join(printable(line) for line in text.splitlines())


def age_of(created_at_s: float | None) -> str:
    """How long ago, "" when unknown."""
    if created_at_s is None:
        return ""
    return format_duration(max(0.0, SYSTEM_CLOCK.time_s() - created_at_s))


def _overview(messages: Sequence[Message]) -> object:
    columns = ["id", "type", "age", "group", "bytes"]
    are_rejected = any(REJECTION_REASON in message.headers for message in messages)
    if are_rejected:
        columns += ["attempts", "rejected because", "detail"]
    rows = []
    for message in messages:
        row = [
            printable(message.id),
            printable(message.type),
            age_of(message.created_at_s),
            printable(message.group or ""),
            f"{len(message.body):,}",
        ]
        if are_rejected:
            names = (ATTEMPTS, REJECTION_REASON, REJECTION_DETAIL)
            row += [printable(message.headers.get(name, "")) for name in names]
        rows.append(row)
    return table(columns, rows, right=["age", "bytes", "attempts"])
