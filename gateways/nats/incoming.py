"""Incoming: what comes over a connection, taken apart without ever failing. Pure."""

from __future__ import annotations

from typing import Final

import attrs

STATUS: Final = "Status"
DESCRIPTION: Final = "Description"
_VERSION: Final = len(b"NATS/1.0")


@attrs.define(eq=False)
class Incoming:
    """A message, as it was read from a connection."""

    subject: str
    reply: str
    data: bytes = attrs.field(repr=False)
    headers: dict[str, str] | None = attrs.field(default=None, repr=False)


def headers_of(raw: bytes) -> dict[str, str]:
    """The headers in a block of them, whatever else is in it.

    A block begins with a version, which a code and a text may follow: where the server itself
    wrote it, they are its status.
    """
    headers: dict[str, str] = {}
    first, *lines = raw.decode("utf-8", "replace").split("\r\n")
    code, _, text = first[_VERSION:].strip().partition(" ")
    if code:
        headers[STATUS], headers[DESCRIPTION] = code, text.strip()
    for line in lines:
        name, colon, value = line.partition(":")
        if colon and (name := name.strip()):
            headers[name] = value.strip()
    return headers


def status_of(message: Incoming) -> str:
    """The code of a message that the server itself wrote; empty for all others.

    Whatever a stream delivers has a subject to be acknowledged on.
    """
    if message.data or message.reply or not message.headers:
        return ""
    return message.headers.get(STATUS, "")
