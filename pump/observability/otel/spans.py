"""Spans: the context managers around a send, a settle call and the handling of a delivery.

Each makes its span current, so that what happens inside belongs to it, and takes that back exactly
once, on whichever way the block is left. None of them lets trouble of its own out.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import Token
from types import TracebackType
from typing import TYPE_CHECKING, Self

from opentelemetry.context import Context, attach, detach
from opentelemetry.trace import Span, SpanKind, set_span_in_context

from ...message import Delivery, Message
from ...outcome import Outcome, Reject, Settlement
from ..failure_names import is_failed
from . import attributes as names
from .failures import record_failure
from .propagation import creator_in, links_to

if TYPE_CHECKING:
    from .tracing import Tracing


class _Current:
    """A span, and the place it has among what is current."""

    __slots__ = ("_token", "span")

    def __init__(self, span: Span, within: Context | None = None) -> None:
        self.span = span
        self._token: Token[Context] | None = attach(set_span_in_context(span, within))

    def end(self) -> None:
        token, self._token = self._token, None
        if token is not None:
            detach(token)
            self.span.end()


class _Around:
    """What the three have in common: how they end."""

    __slots__ = ("_current", "_tracing")

    def __init__(self, tracing: Tracing) -> None:
        self._tracing = tracing
        self._current: _Current | None = None

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        current, self._current = self._current, None
        if current is None:
            return
        try:
            if error is not None:
                record_failure(current.span, error, with_text=self._tracing.with_texts)
        except Exception as trouble:  # broad: a provider's defect is not the message's
            self._tracing.trouble.note("trace", trouble)
        try:
            current.end()
        except Exception as trouble:  # broad: as above
            self._tracing.trouble.note("trace", trouble)


class ProcessSpan(_Around):
    """One delivery in the hands of its handlers: a child of the span that sent it."""

    __slots__ = ("_delivery",)

    def __init__(self, tracing: Tracing, delivery: Delivery) -> None:
        super().__init__(tracing)
        self._delivery = delivery

    def __enter__(self) -> Self:
        try:
            self._current = self._begin()
        except Exception as trouble:  # broad: a provider's defect is not the message's
            self._tracing.trouble.note("process", trouble)
        return self

    def ended(self, outcome: Outcome, error: BaseException | None) -> None:
        if self._current is None:
            return
        try:
            self._note(self._current.span, outcome, error)
        except Exception as trouble:  # broad: as above
            self._tracing.trouble.note("process", trouble)

    def _begin(self) -> _Current:
        tracing, delivery = self._tracing, self._delivery
        sender, _ = tracing.propagation.origin_of_received(delivery)
        known = tracing.known("process", delivery.queue)
        span = tracing.tracer.start_span(
            known.title,
            context=sender,
            kind=SpanKind.CONSUMER,
            attributes={
                **known.attributes,
                **names.message_attributes(delivery.message),
                names.ATTEMPT: delivery.attempt,
            },
        )
        return _Current(span, sender)

    def _note(self, span: Span, outcome: Outcome, error: BaseException | None) -> None:
        if not span.is_recording():
            return
        span.set_attribute(names.OUTCOME, type(outcome).__name__.lower())
        if isinstance(outcome, Reject):
            span.set_attribute(names.REASON, str(outcome.reason))
        if error is not None and is_failed(outcome, error):
            record_failure(span, error, with_text=self._tracing.with_texts)


class SettleSpan(_Around):
    """One settle call, linked to the spans that sent the messages; a child, where that is one."""

    __slots__ = ("_queue", "_settlements")

    def __init__(self, tracing: Tracing, queue: str, settlements: Sequence[Settlement]) -> None:
        super().__init__(tracing)
        self._queue = queue
        self._settlements = settlements

    def __enter__(self) -> None:
        try:
            deliveries = [each.delivery for each in self._settlements]
            self._current = _Current(self._tracing.start_shared("settle", self._queue, deliveries))
        except Exception as trouble:  # broad: a provider's defect is not the message's
            self._tracing.trouble.note("settle", trouble)


class SendSpan(_Around):
    """One send.

    A single message carries the send span's context. Of several, each carries that of a span of
    its own, `create`, and the send span links to these. A message that comes with a context, as
    a dead letter does, keeps it, and is linked to.
    """

    __slots__ = ("_messages", "_queue")

    def __init__(self, tracing: Tracing, queue: str, messages: Sequence[Message]) -> None:
        super().__init__(tracing)
        self._queue = queue
        self._messages = messages

    def __enter__(self) -> Sequence[Message]:
        try:
            return self._begin()
        except Exception as trouble:  # broad: a provider's defect is not the message's
            self._tracing.trouble.note("send", trouble)
            return self._messages

    def _begin(self) -> Sequence[Message]:
        if len(self._messages) == 1:
            return [self._begin_single(self._messages[0])]
        propagation = self._tracing.propagation
        traced, creators = [], []
        for message in self._messages:
            _, creator = propagation.origin_of(message)
            if creator is None:
                context = self._create(message)
                creator = creator_in(context)
                message = propagation.put_into(message, context)
            traced.append(message)
            creators.append(creator)
        known = self._tracing.known("send", self._queue)
        span = self._tracing.tracer.start_span(
            known.title,
            # Its context is nobody's creation context, so it is no producer to those who read it.
            kind=SpanKind.CLIENT,
            attributes={**known.attributes, names.BATCH_COUNT: len(self._messages)},
            links=links_to(creators),
        )
        self._current = _Current(span)
        return traced

    def _begin_single(self, message: Message) -> Message:
        tracing = self._tracing
        own, creator = tracing.propagation.origin_of(message)
        known = tracing.known("send", self._queue)
        span = tracing.tracer.start_span(
            known.title,
            # Outside of any trace, what is sent on stays in the trace it came from.
            context=None if creator is None or tracing.is_in_trace() else own,
            kind=SpanKind.PRODUCER if creator is None else SpanKind.CLIENT,
            attributes={**known.attributes, **names.message_attributes(message)},
            links=links_to([creator]),
        )
        self._current = _Current(span)
        if creator is not None:
            return message
        return tracing.propagation.put_into(message, set_span_in_context(span))

    def _create(self, message: Message) -> Context:
        tracing = self._tracing
        known = tracing.known("create", self._queue)
        span = tracing.tracer.start_span(
            known.title,
            kind=SpanKind.PRODUCER,
            attributes={**known.attributes, **names.message_attributes(message)},
        )
        span.end()
        return set_span_in_context(span)
