"""Fetching: a pull over the connection, which loses nothing that came too late."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import attrs
import msgspec

from pump.clock import Clock
from pump.errors import ConnectionFailed

from .calls import JetStream
from .link import Link
from .pulls import Arrived, Ending, Pull, pull_request

_encode = msgspec.json.Encoder().encode


@attrs.frozen(eq=False)
class Fetched:
    """What a pull brought, leased."""

    link: Link
    arrived: Sequence[Arrived]
    ending: Ending
    status: str


@attrs.frozen(kw_only=True)
class Wish:
    """What is asked for."""

    consumer: str
    """`<stream>.<consumer>`."""
    max_count: int
    wait_s: float
    is_bounded: bool = False


async def fetch(
    api: JetStream,
    wish: Wish,
    *,
    clock: Clock,
    unwanted: Callable[[Link, Arrived], None],
) -> Fetched:
    """Up to `max_count` messages, as soon as there is one, or none after `wait_s`.

    Cancelled or failing, it has the server forget the pull, and what came of it goes to `unwanted`.
    """
    link = await api.connection.link()
    inbox = await link.open_inbox()
    pull = Pull(wish.max_count, clock, ends_at_s=clock.now_s() + wish.wait_s)
    reply = inbox.begin(pull.receive)
    is_over = False

    def take(arrived: Arrived) -> None:
        if arrived.message.reply:
            unwanted(link, arrived)

    subject = api.subject(f"CONSUMER.MSG.NEXT.{wish.consumer}")
    request = pull_request(max_count=wish.max_count, wait_s=wish.wait_s, is_bounded=wish.is_bounded)
    try:
        await link.publish(subject, _encode(request), reply=reply)
        timeout_s = wish.wait_s + api.connection.settings.request_timeout_s
        is_over = await _is_answered(link, pull, subject, timeout_s=timeout_s)
    except BaseException:
        for each in pull.arrived:
            take(each)
        raise
    finally:
        if is_over:
            link.close_inbox(inbox)
        else:
            link.drop_inbox(inbox, lambda message: take(Arrived(message, clock.now_s())))
    return Fetched(link, tuple(pull.arrived), pull.ending, pull.status)


async def _is_answered(link: Link, pull: Pull, subject: str, *, timeout_s: float) -> bool:
    """Whether the server ended the pull. What came before a connection was lost is good: its
    leases are the server's.
    """
    try:
        await link.until(pull.done, subject, timeout_s=timeout_s)
    except ConnectionFailed:
        if pull.arrived:
            return False
        raise
    return True
