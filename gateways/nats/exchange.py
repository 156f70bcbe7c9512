"""Requests, and what came of them."""

from __future__ import annotations

import attrs

from pump.errors import GatewayError

from .incoming import Incoming


@attrs.frozen(kw_only=True)
class Request:
    """One thing to ask the server for."""

    subject: str
    payload: bytes = attrs.field(default=b"", repr=False)
    headers: dict[str, str] | None = attrs.field(default=None, repr=False)


class NoResponders(Exception):
    """Nobody listens where this was sent: there is no such stream, consumer or API."""


Answer = Incoming | NoResponders | GatewayError
"""What came of a request. A refusal inside an answer is for its reader to find."""
