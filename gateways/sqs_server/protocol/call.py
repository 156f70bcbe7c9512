"""One request, understood: what both protocols become before an operation sees it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """An operation and its parameters, with where it came from.

    Parameters have the JSON protocol's names and types whatever protocol they came in: lists,
    maps, ints, and `bytes` for binary values. None is absent, never a value.
    """

    operation: str
    parameters: Mapping[str, Any]
    account: str
    region: str
    base_url: str
    """`http://host:port` as the client reached us, so that queue URLs lead back the same way."""
    sender: str
    """The access key id, or the account when there is none."""
    is_json: bool
    accepts_json: bool = False
    """A query request that asks for its answer in JSON (`Accept: application/json`)."""
    trace_header: str | None = None
    """X-Amzn-Trace-Id: what AWSTraceHeader becomes when a sender does not set it."""

    def __repr__(self) -> str:
        # Without the parameters, for bodies are among them.
        return f"Call({self.operation!r}, account={self.account!r}, region={self.region!r})"


class Answer(NamedTuple):
    """What goes back over HTTP."""

    status: int
    headers: dict[str, str]
    body: bytes
