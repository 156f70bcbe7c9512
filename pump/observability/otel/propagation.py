"""Propagation: the trace's context in a message's headers, W3C's unless the program chose another
propagator.
"""

from __future__ import annotations

from weakref import WeakKeyDictionary

from msgspec.structs import replace
from opentelemetry import propagate
from opentelemetry.context import Context
from opentelemetry.propagators.textmap import TextMapPropagator
from opentelemetry.trace import Link, SpanContext, get_current_span

from ...message import Delivery, Message
from .carriers import readable

_NOTHING = Context()
Origin = tuple[Context, SpanContext | None]
"""The context that a message came with, and the span in it: the one that created the message."""


class Propagation:
    """Reads and writes contexts; that of a delivery is read once, however often it is asked for."""

    def __init__(self, propagator: TextMapPropagator | None = None) -> None:
        self._propagator = propagator or propagate.get_global_textmap()
        self._names = self._propagator.fields
        self._known: WeakKeyDictionary[Delivery, Origin] = WeakKeyDictionary()

    def origin_of(self, message: Message) -> Origin:
        """What the message says; nothing when it carries no context, or none that can be read.
        Never the context we happen to be in.
        """
        if self._names.isdisjoint(message.headers):
            return _NOTHING, None
        try:
            context = self._propagator.extract(readable(message.headers), _NOTHING)
        except ValueError:  # OpenTelemetry's own, of a baggage with half a surrogate pair
            return _NOTHING, None
        return context, creator_in(context)

    def origin_of_received(self, delivery: Delivery) -> Origin:
        """As `origin_of`, for a message in hand."""
        known = self._known.get(delivery)
        if known is None:
            known = self._known[delivery] = self.origin_of(delivery.message)
        return known

    def put_into(self, message: Message, context: Context) -> Message:
        """The message with this context in its headers."""
        headers = dict(message.headers)
        self._propagator.inject(headers, context)
        return replace(message, headers=headers)


def creator_in(context: Context) -> SpanContext | None:
    """The span of this context; None when it has none."""
    found = get_current_span(context).get_span_context()
    return found if found.is_valid else None


def links_to(creators: list[SpanContext | None]) -> list[Link]:
    """A link to each, those left out that are unknown."""
    return [Link(each) for each in creators if each is not None]
