"""Log context: says, on a line logged inside a handler, which message it was about."""

from __future__ import annotations

import re
import sys
from collections.abc import MutableMapping
from typing import Any

from ..context import current_context
from ..headers import TRACE_PARENT
from ..message import Message

# https://www.w3.org/TR/trace-context/: version, trace, parent, flags; other versions append.
_TRACE_PARENT = re.compile(
    r"[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-[0-9a-f]{2}"
)

Trace = tuple[str, str]
"""The ids of a trace and of a span, in hexadecimal."""


def add_message_in_hand(
    logger: object, method: str, event: MutableMapping[str, Any]
) -> MutableMapping[str, Any]:
    """A structlog processor: adds handler, subscription, message id, attempt, correlation id and
    the ids of the trace; leaves what the line says by itself as it is.
    """
    context = current_context()
    message = None
    if context is not None:
        event.setdefault("handler", context.handler)
        if context.subscription is not None:
            event.setdefault("subscription", context.subscription.name)
        message = context.message
    if message is not None and context is not None:
        event.setdefault("message_id", message.id)
        event.setdefault("attempt", context.attempt)
        if message.correlation_id:
            event.setdefault("correlation_id", message.correlation_id)
    trace = active_trace() or (None if message is None else trace_of(message))
    if trace is not None:
        event.setdefault("trace_id", trace[0])
        event.setdefault("span_id", trace[1])
    return event


def trace_of(message: Message) -> Trace | None:
    """The trace that the message belongs to, and the span that sent it."""
    header = message.headers.get(TRACE_PARENT)
    if header is None:
        return None
    # It is foreign text: nothing of it is printed that is not an id.
    found = _TRACE_PARENT.match(header)
    return None if found is None else (found[1], found[2])


def active_trace() -> Trace | None:
    """The span that is active here; None where OpenTelemetry is not in use."""
    otel = sys.modules.get("opentelemetry.trace")
    if otel is None:
        return None
    span = otel.get_current_span().get_span_context()
    return (f"{span.trace_id:032x}", f"{span.span_id:016x}") if span.is_valid else None
