"""Pulls: one request for messages, and how its answers end it. Pure, but for the future.

The request says `no_wait` and when it expires. Then the server sends what there is and ends the
pull; where there is nothing it waits, and ends it after what came first. Thus a pull never stays
behind to take messages that no receive waits for.

| the server sends          | and the pull                                                    |
|---------------------------|-----------------------------------------------------------------|
| a message                 | goes on, or ends when it has as many as were asked for          |
| 404, 408                  | ends: no more for now, or its time is over                      |
| 409                       | ends: the consumer or its server is going, or too many wait     |
| 503                       | ends: there is no such consumer                                 |
| 100                       | goes on: the server is alive                                    |
"""

from __future__ import annotations

import asyncio
from binascii import a2b_base64
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Any

import attrs
import msgspec

from pump.clock import Clock
from pump.errors import ConnectionFailed
from pump.message import Delivery, Message

from .connection import ApiError, JetStream, fault_of, nanoseconds
from .errors import MESSAGE_NOT_FOUND
from .link import DESCRIPTION, Incoming, Link, headers_of, status_of
from .names import QueueNames, name_of
from .queue_settings import time_s
from .receipts import receipt_for
from .wire import arrival_of, decode, native_of

_SHORTEST_S = 0.02
"""How long a pull that must not wait may wait where it is not answered at once: while as many
are in flight as may be, the server leaves it unanswered until it expires."""


class PullEnd(StrEnum):
    """Why a pull ended."""

    DONE = "done"
    """There is no more, or enough."""
    GONE = "gone"
    """There is no such consumer, or it was just deleted."""
    AGAIN = "again"
    """The server is about to stop, or another one takes over."""
    CROWDED = "crowded"
    """Too many wait on this queue already."""
    REFUSED = "refused"
    """The server does not take the request; the status says why."""


def pull_request(*, max_count: int, wait_s: float, is_bounded: bool) -> dict[str, Any]:
    """The body of a pull."""
    if wait_s <= 0 and is_bounded:
        wait_s = _SHORTEST_S
    request: dict[str, Any] = {"batch": max_count, "no_wait": True}
    if wait_s > 0:
        request["expires"] = max(nanoseconds(wait_s), nanoseconds(_SHORTEST_S))
    return request


@attrs.frozen(eq=False)
class Arrived:
    """A message, and since when its lease runs at least."""

    message: Incoming
    at_s: float


class Pull:
    """The answers to one request, as they come in."""

    def __init__(self, max_count: int, clock: Clock, *, ends_at_s: float) -> None:
        self._max_count = max_count
        self._clock = clock
        self._ends_at_s = ends_at_s
        self.arrived: list[Arrived] = []
        self.end = PullEnd.DONE
        self.status = ""
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def receive(self, message: Incoming) -> None:
        """One answer."""
        status = status_of(message)
        if not status:
            # What is read later than that was on its way, or waited for this process.
            self.arrived.append(Arrived(message, min(self._clock.now_s(), self._ends_at_s)))
            if len(self.arrived) < self._max_count:
                return
        elif status == "100":
            return
        else:
            text = (message.headers or {}).get(DESCRIPTION, "")
            self.end, self.status = _end_of(status, text), f"{status} {text}".strip()
        if not self.done.done():
            self.done.set_result(None)


def _end_of(status: str, text: str) -> PullEnd:
    text = text.lower()
    match status:
        case "404" | "408":
            return PullEnd.DONE
        case "503":
            return PullEnd.GONE
        case "409" if "deleted" in text:
            return PullEnd.GONE
        case "409" if "waiting" in text:
            return PullEnd.CROWDED
        case "409":
            return PullEnd.AGAIN
    return PullEnd.REFUSED


# Fetching: a pull over the connection, which loses nothing that came too late.

_encode = msgspec.json.Encoder().encode


@attrs.frozen(eq=False)
class Fetched:
    """What a pull brought, leased."""

    link: Link
    arrived: Sequence[Arrived]
    end: PullEnd
    status: str


@attrs.frozen(kw_only=True)
class PullOptions:
    """What is asked for."""

    consumer: str
    """`<stream>.<consumer>`."""
    max_count: int
    wait_s: float
    is_bounded: bool = False


async def fetch(
    api: JetStream,
    options: PullOptions,
    *,
    clock: Clock,
    unwanted: Callable[[Link, Arrived], None],
) -> Fetched:
    """Up to `max_count` messages, as soon as there is one, or none after `wait_s`.

    Cancelled or failing, it has the server forget the pull, and what came of it goes to `unwanted`.
    """
    link = await api.connection.link()
    inbox = await link.open_inbox()
    pull = Pull(options.max_count, clock, ends_at_s=clock.now_s() + options.wait_s)
    reply = inbox.begin(pull.receive)
    is_over = False

    def take(arrived: Arrived) -> None:
        if arrived.message.reply:
            unwanted(link, arrived)

    subject = api.subject(f"CONSUMER.MSG.NEXT.{options.consumer}")
    request = pull_request(
        max_count=options.max_count, wait_s=options.wait_s, is_bounded=options.is_bounded
    )
    try:
        await link.publish(subject, _encode(request), reply=reply)
        timeout_s = options.wait_s + api.connection.settings.request_timeout_s
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
    return Fetched(link, tuple(pull.arrived), pull.end, pull.status)


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


# Inbound: from what the server delivered to deliveries, understood or not. Pure.


def delivery_of(
    arrived: Arrived, names: QueueNames, *, lease_s: float, is_ordered: bool
) -> Delivery:
    """The delivery, under a receipt of its own."""
    message = arrived.message
    arrival = arrival_of(message.reply)
    sequence = 0 if arrival is None else arrival.sequence
    return Delivery(
        message=message_of(
            message.subject,
            message.headers,
            message.data,
            names=names,
            stored=(sequence, None if arrival is None else arrival.stored_at_s),
        ),
        queue=names.queue,
        receipt=receipt_for(message.reply),
        attempt=1 if arrival is None else arrival.attempt,
        lease_expires_at_s=arrived.at_s + lease_s,
        is_ordered=is_ordered,
        broker_id=sequence,
        native=native_of(message.headers),
    )


def message_of(
    subject: str,
    headers: dict[str, str] | None,
    body: bytes,
    *,
    names: QueueNames,
    stored: tuple[int, float | None],
) -> Message:
    """The message of any producer; `stored` is its place in the stream, and since when."""
    sequence, stored_at_s = stored
    token = names.group_token(subject)
    return decode(
        headers,
        body,
        stored_as=f"{names.stream}-{sequence}",
        stored_at_s=stored_at_s,
        group=None if token is None else name_of(token) or token,
    )


# Stored messages: looking into a stream without receiving from it.


async def next_stored(
    api: JetStream, names: QueueNames, sequence: int, *, subject: str = ">"
) -> dict[str, Any] | None:
    """The first message at or after a place in the stream, None when there is none."""
    request = {"seq": sequence, "next_by_subj": subject}
    try:
        answer = await api.ask(f"STREAM.MSG.GET.{names.stream}", request)
    except ApiError as error:
        if error.error_code == MESSAGE_NOT_FOUND:
            return None
        raise fault_of(error, names.queue) from error
    message: dict[str, Any] = answer["message"]
    return message


def message_in(stored: Mapping[str, Any], names: QueueNames) -> Message:
    """The message of any producer."""
    return message_of(
        stored["subject"],
        headers_of(a2b_base64(stored.get("hdrs") or "")),
        a2b_base64(stored.get("data") or ""),
        names=names,
        stored=(int(stored["seq"]), time_s(stored.get("time"))),
    )
