"""Peeking: messages on a screen, or as JSON."""

from __future__ import annotations

import base64
from collections.abc import Sequence

from rich.text import Text

from ..clock import SYSTEM_CLOCK
from ..durations import format_duration
from ..headers import ATTEMPTS, REJECTION_DETAIL, REJECTION_REASON
from ..message import Message
from .console import print_json, printable, stdout, table


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
    """How long ago, "" when nobody said."""
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
