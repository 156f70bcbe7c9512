"""Stored messages: looking into a stream without receiving from it."""

from __future__ import annotations

from binascii import a2b_base64
from collections.abc import Mapping
from typing import Any

from pump.message import Message

from .calls import ApiError, JetStream, fault_of
from .errors import MESSAGE_NOT_FOUND
from .inbound import message_of
from .incoming import headers_of
from .names import QueueNames
from .queue_facts import time_s


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
    """The message, whoever sent it."""
    return message_of(
        stored["subject"],
        headers_of(a2b_base64(stored.get("hdrs") or "")),
        a2b_base64(stored.get("data") or ""),
        names=names,
        stored=(int(stored["seq"]), time_s(stored.get("time"))),
    )
