"""`pump send`: messages to a queue, from the command line, a file or a pipe."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping
from datetime import timedelta
from itertools import islice, repeat
from pathlib import Path

import attrs
import click

from ..app import App
from ..clock import SYSTEM_CLOCK
from ..exit_codes import ExitCode, Failure
from ..message import JSON, Message
from ..subscription import MakeChannels, QueueSpec
from .console import print_warning
from .options import app_option, duration, gateway_option, pair
from .session import app_for, in_session, shown_gateway


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

    send_options = SendOptions(
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
        send_options,
        body or "-",
        count=count,
        by_line=lines,
        create=create,
        app=app,
        gateway=gateway,
    )


# Sending: what `pump send` does once its options are known.

_BATCH = 500
"""How many messages are in flight at a time: a pipe may bring millions."""


@attrs.frozen(kw_only=True)
class SendOptions:
    """Everything about the messages to send but their bodies."""

    queue: str
    type: str
    headers: Mapping[str, str]
    group: str | None
    delay: timedelta
    deduplication_id: str | None
    correlation_id: str | None
    content_type: str | None

    def message(self, body: bytes, *, called: str = "the body") -> Message:
        """A message with this body; unless its content type was named, it must be JSON."""
        if self.content_type is None:
            _check_json(body, called)
        return Message(
            body=body,
            type=self.type,
            content_type=self.content_type or JSON,
            headers=self.headers,
            group=self.group,
            deduplication_id=self.deduplication_id,
            correlation_id=self.correlation_id,
            created_at_s=SYSTEM_CLOCK.time_s(),
        )


def send_all(
    send_options: SendOptions,
    source: str,
    *,
    count: int,
    by_line: bool,
    create: bool,
    app: str | None,
    gateway: str | None,
) -> None:
    """Send one body `count` times, or each line of the source, and print the ids."""
    bodies = _lines_of(source) if by_line else iter(repeat(_body_of(source), count))
    messages = _messages(send_options, bodies, by_line=by_line)
    first = list(islice(messages, _BATCH))

    async def work(opened: App) -> None:
        if not opened.gateway.capabilities.is_shared:
            print_warning(
                f"{shown_gateway(opened)} lives inside one process: nobody else will see this"
            )
        if create:
            await opened.admin.ensure(QueueSpec(name=send_options.queue), MakeChannels.CREATE)
        batch = first
        while batch:
            ids = await opened.post_all(batch, queue=send_options.queue, delay=send_options.delay)
            click.echo("\n".join(ids))
            batch = list(islice(messages, _BATCH))

    in_session(app_for(app, gateway), work)


def _messages(
    send_options: SendOptions, bodies: Iterator[bytes], *, by_line: bool
) -> Iterator[Message]:
    for number, body in enumerate(bodies, 1):
        called = f"line {number:,} (not counting blank ones)" if by_line else "the body"
        yield send_options.message(body, called=called)


def _body_of(source: str) -> bytes:
    if source == "-":
        return sys.stdin.buffer.read()
    if source.startswith("@"):
        try:
            return Path(source[1:]).read_bytes()
        except OSError as error:
            raise _unreadable(source, error) from None
    return os.fsencode(source)


def _lines_of(source: str) -> Iterator[bytes]:
    """The lines that are not blank, without their ends."""
    if source == "-":
        yield from _filled(sys.stdin.buffer)
        return
    if not source.startswith("@"):
        yield from _filled(iter(os.fsencode(source).splitlines()))
        return
    try:
        with Path(source[1:]).open("rb") as file:
            yield from _filled(file)
    except OSError as error:
        raise _unreadable(source, error) from None


def _filled(lines: Iterator[bytes]) -> Iterator[bytes]:
    return (stripped for line in lines if (stripped := line.rstrip(b"\r\n")).strip())


def _unreadable(source: str, error: OSError) -> Failure:
    return Failure(
        f"cannot read {source[1:]!r}: {error.strerror}",
        remedy="after @ stands a file's path",
        exit_code=ExitCode.USAGE,
    )


def _check_json(body: bytes, called: str) -> None:
    try:
        json.loads(body)
    except (ValueError, RecursionError) as error:
        raise Failure(
            f"{called} is not JSON ({error})",
            remedy="quote it for your shell, or name a --content-type to send it as it is",
            exit_code=ExitCode.USAGE,
        ) from None
