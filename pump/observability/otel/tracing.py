"""Tracing: the `Telemetry` that makes spans, by OpenTelemetry's messaging conventions.

| span      | kind     | belongs to the trace of                                               |
|-----------|----------|-----------------------------------------------------------------------|
| `create`  | producer | the caller; one a message of a batch, and what the message carries    |
| `send`    | producer | the caller; what a single message carries (client for a batch)        |
| `receive` | client   | the sender, if all messages come from one trace; else one of its own  |
| `process` | consumer | the sender                                                            |
| `settle`  | client   | as `receive`                                                          |

`receive` and `settle` link to what created each of their messages. An empty receive makes no span.
"""

from __future__ import annotations

import re
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from contextvars import Token
from importlib.metadata import PackageNotFoundError, version
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self
from weakref import WeakKeyDictionary

import attrs
from msgspec.structs import replace
from opentelemetry import propagate
from opentelemetry.context import Context, attach, detach
from opentelemetry.propagators.textmap import TextMapPropagator
from opentelemetry.trace import (
    Link,
    Span,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    Tracer,
    TracerProvider,
    get_current_span,
    set_span_in_context,
)

from ...clock import SYSTEM_CLOCK, Clock
from ...decide import MAX_DETAIL
from ...errors import text_of
from ...headers import TRACE_STATE
from ...message import Delivery, Message
from ...outcome import Outcome, Reject, Settlement
from .. import vocabulary
from ..log import get_logger
from ..telemetry import failure_name, is_failed, messaging_system

if TYPE_CHECKING:
    from ...loop.processing import DeliveryResult
    from ...subscription import Subscription
    from ..telemetry import Counters


SCOPE = "pumphouse"
_NANOSECONDS = 1_000_000_000


def own_version() -> str:
    """Ours, as installed; empty when it is not."""
    try:
        return version("pumphouse")
    except PackageNotFoundError:
        return ""


@attrs.frozen
class SpanTemplate:
    """What all spans of one operation on one queue have in common."""

    title: str
    attributes: Attributes


class Tracing:
    """Makes spans through a provider that it does not own."""

    def __init__(
        self, propagator: TextMapPropagator | None, trouble: Trouble, *, with_texts: bool
    ) -> None:
        self._propagator = propagator
        self.propagation: Propagation
        self.trouble = trouble
        self.with_texts = with_texts
        self.tracer: Tracer
        self._clock: Clock = SYSTEM_CLOCK
        self._system = ""
        self._known: dict[tuple[str, str], SpanTemplate] = {}

    def use(self, provider: TracerProvider) -> None:
        """Make spans through this provider from now on."""
        self.tracer = provider.get_tracer(SCOPE, own_version())
        self.propagation = Propagation(self._propagator)

    async def start(
        self, counters: Counters, gateway: str, *, clock: Clock, counts_messages: bool
    ) -> None:
        self._clock = clock
        self._system = messaging_system(gateway)
        self._known.clear()

    async def flush(self) -> None:
        """The provider's owner does."""

    async def aclose(self) -> None:
        """The provider's owner does."""

    def sending(
        self, queue: str, messages: Sequence[Message], *, is_copy: bool = False
    ) -> AbstractContextManager[Sequence[Message]]:
        return SendSpan(self, queue, messages)

    def received(
        self, subscription: Subscription, deliveries: Sequence[Delivery], *, waited_s: float | None
    ) -> None:
        if not deliveries or waited_s is None:
            return
        try:
            ended_s = self._clock.time_s()
            span = self.start_shared(
                "receive", subscription.queue, deliveries, began_s=ended_s - waited_s
            )
            span.end(int(ended_s * _NANOSECONDS))
        except Exception as trouble:  # broad: a provider's defect is not the message's
            self.trouble.note("receive", trouble)

    def processing(self, subscription: Subscription, delivery: Delivery) -> ProcessSpan:
        return ProcessSpan(self, delivery)

    def settling(
        self, subscription: Subscription, settlements: Sequence[Settlement]
    ) -> AbstractContextManager[None]:
        return SettleSpan(self, subscription.queue, settlements)

    def failed(self, operation: str, queue: str, error: BaseException) -> None:
        """A receive that failed had no span; of other calls the span itself knows."""
        if operation != "receive":
            return
        try:
            known = self.known("receive", queue)
            span = self.tracer.start_span(
                known.title, context=Context(), kind=SpanKind.CLIENT, attributes=known.attributes
            )
            record_failure(span, error, with_text=self.with_texts)
            span.end()
        except Exception as trouble:  # broad: a provider's defect is not the message's
            self.trouble.note("receive", trouble)

    def watching(self, subscription: Subscription, in_flight: Callable[[], int]) -> None:
        """No span."""

    def settled(self, subscription: Subscription, results: Sequence[DeliveryResult]) -> None:
        """No span."""

    def extended(self, subscription: Subscription, count: int) -> None:
        """No span."""

    def lost(self, subscription: Subscription, delivery: Delivery) -> None:
        """No span: that of its handler ends as cancelled."""

    def spilled(self, count: int) -> None:
        """No span."""

    # -- for the spans -----------------------------------------------------------------------------

    def known(self, operation: str, queue: str) -> SpanTemplate:
        """What every span of this operation says."""
        found = self._known.get((operation, queue))
        if found is None:
            found = self._known[operation, queue] = SpanTemplate(
                f"{operation} {queue}",
                {
                    SYSTEM: self._system,
                    DESTINATION: queue,
                    OPERATION_NAME: operation,
                    OPERATION_TYPE: operation,
                },
            )
        return found

    def is_in_trace(self) -> bool:
        """Whether a span is current."""
        return get_current_span().get_span_context().is_valid

    def start_shared(
        self,
        operation: str,
        queue: str,
        deliveries: Sequence[Delivery],
        *,
        began_s: float | None = None,
    ) -> Span:
        """A span for all of these: a child of what sent them, if that is one trace, and linked to
        each in any case.
        """
        known = self.known(operation, queue)
        origins = [self.propagation.origin_of_received(each) for each in deliveries]
        creators = [creator for _, creator in origins]
        if len(deliveries) == 1:
            about = message_attributes(deliveries[0].message)
        else:
            about = {BATCH_COUNT: len(deliveries)}
        is_one_trace = len({each and each.trace_id for each in creators}) == 1
        return self.tracer.start_span(
            known.title,
            context=origins[0][0] if is_one_trace else Context(),
            kind=SpanKind.CLIENT,
            attributes={**known.attributes, **about},
            links=links_to(creators),
            start_time=None if began_s is None else int(began_s * _NANOSECONDS),
        )


# Failures on spans: what kind of error it was and where, without its text.
#
# Texts quote what they complain about: a body's field, a key, a password in a URL. So the class and
# the places in the code are recorded, and the text only where the program asked for it.

_MAX_FRAMES = 30


def record_failure(span: Span, error: BaseException, *, with_text: bool) -> None:
    """Mark the span as failed by `error`."""
    if not span.is_recording():
        return
    kind = failure_name(error)
    span.set_attribute(ERROR_TYPE, kind)
    span.set_status(Status(StatusCode.ERROR, kind))
    details = {
        EXCEPTION_TYPE: _full_name(type(error)),
        EXCEPTION_STACKTRACE: places_of(error),
    }
    if with_text:
        details[EXCEPTION_MESSAGE] = text_of(error)[:MAX_DETAIL]
    span.add_event("exception", details)


def places_of(error: BaseException) -> str:
    """Where it came from, the raising place last: files, lines and functions.

    Without source lines, which a traceback would show and which take a file to read.
    """
    frames = traceback.walk_tb(error.__traceback__)
    summary = traceback.StackSummary.extract(frames, limit=-_MAX_FRAMES, lookup_lines=False)
    return "\n".join(
        f'  File "{frame.filename}", line {frame.lineno}, in {frame.name}' for frame in summary
    )


def _full_name(kind: type[BaseException]) -> str:
    if kind.__module__ == "builtins":
        return kind.__qualname__
    return f"{kind.__module__}.{kind.__qualname__}"


# Attributes: the names of OpenTelemetry's messaging conventions, and a few of our own.
#
# Spelled here and not taken from the conventions' package: it keeps them in a module that it calls
# private, and moves them.

SYSTEM: Final = "messaging.system"
DESTINATION: Final = "messaging.destination.name"
OPERATION_NAME: Final = "messaging.operation.name"
OPERATION_TYPE: Final = "messaging.operation.type"
BATCH_COUNT: Final = "messaging.batch.message_count"
MESSAGE_ID: Final = "messaging.message.id"
CONVERSATION_ID: Final = "messaging.message.conversation_id"
BODY_SIZE: Final = "messaging.message.body.size"
ERROR_TYPE: Final = "error.type"
EXCEPTION_TYPE: Final = "exception.type"
EXCEPTION_MESSAGE: Final = "exception.message"
EXCEPTION_STACKTRACE: Final = "exception.stacktrace"

MESSAGE_TYPE: Final = "pumphouse.message.type"
ATTEMPT: Final = "pumphouse.attempt"
OUTCOME: Final = "pumphouse.outcome"
REASON: Final = "pumphouse.rejection.reason"

Attributes = dict[str, str | int]


def message_attributes(message: Message) -> Attributes:
    """What may be known of a message: never its body, nor its headers."""
    found: Attributes = {MESSAGE_ID: message.id, BODY_SIZE: len(message.body)}
    if message.type:
        found[MESSAGE_TYPE] = message.type
    if message.correlation_id is not None:
        found[CONVERSATION_ID] = message.correlation_id
    return found


# Propagation: the trace's context in a message's headers, W3C's unless the program chose another
# propagator.

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
        """As `origin_of`, for a received message."""
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


# Carriers: the headers of a message, as far as OpenTelemetry may read them.
#
# Its propagators write what they cannot read into the program's log, word for word, and a message's
# headers are foreign text: a malformed `baggage` or `tracestate` is therefore left out, whole.

BAGGAGE = "baggage"
_TOKEN = r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"
_OCTETS = r"[\x21\x23-\x2b\x2d-\x3a\x3c-\x5b\x5d-\x7e]*"
_PAIR = rf"{_TOKEN}={_OCTETS}"
# W3C Baggage, without its optional white space but after commas, and without bare properties.
_BAGGAGE = re.compile(rf"{_PAIR}(;{_PAIR})*(, ?{_PAIR}(;{_PAIR})*)*")
_MAX_BAGGAGE_BYTES = 4096
"""What a single pair may have, so that no limit of the propagator is met."""
_MAX_BAGGAGE_PAIRS = 64
_STATE = re.compile(
    r"[a-z][_0-9a-z\-*/]{0,240}(@[a-z][_0-9a-z\-*/]{0,13})?=[\x21-\x2b\x2d-\x3c\x3e-\x7e]{1,256}"
)
_MAX_STATES = 32


def readable(headers: Mapping[str, str]) -> Mapping[str, str]:
    """The headers, without what a propagator would complain of."""
    state, baggage = headers.get(TRACE_STATE), headers.get(BAGGAGE)
    is_state_bad = state is not None and not _is_state(state)
    is_baggage_bad = baggage is not None and not _is_baggage(baggage)
    if not (is_state_bad or is_baggage_bad):
        return headers
    dropped = {TRACE_STATE} if is_state_bad else set()
    if is_baggage_bad:
        dropped.add(BAGGAGE)
    return {name: value for name, value in headers.items() if name not in dropped}


def _is_baggage(text: str) -> bool:
    return (
        len(text) <= _MAX_BAGGAGE_BYTES
        and text.count(",") < _MAX_BAGGAGE_PAIRS
        and _BAGGAGE.fullmatch(text) is not None
    )


def _is_state(text: str) -> bool:
    members = [member.strip(" \t") for member in text.split(",")]
    keys = {member.partition("=")[0] for member in members}
    return len(keys) == len(members) <= _MAX_STATES and all(
        _STATE.fullmatch(member) for member in members
    )


# Faults of telemetry itself: logged now and then, and without any other effect.

_log = get_logger("pump.telemetry")
_SILENCE_S = 60.0


class Trouble:
    """Says at most once a minute that telemetry failed: it may fail for every message."""

    def __init__(self) -> None:
        self.clock: Clock = SYSTEM_CLOCK
        self._said_at_s: float | None = None

    def note(self, operation: str, error: Exception) -> None:
        """Telemetry could not do this; whatever it was about goes on."""
        now_s = self.clock.now_s()
        if self._said_at_s is None or now_s - self._said_at_s >= _SILENCE_S:
            self._said_at_s = now_s
            error_type = type(error).__name__
            _log.warning(vocabulary.TELEMETRY_FAILED, operation=operation, error_type=error_type)


# Spans: the context managers around a send, a settle call and the handling of a delivery.
#
# Each makes its span current, so that what happens inside belongs to it, and takes that back
# exactly once, on whichever way the block is left. None of them lets trouble of its own out.


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
                **message_attributes(delivery.message),
                ATTEMPT: delivery.attempt,
            },
        )
        return _Current(span, sender)

    def _note(self, span: Span, outcome: Outcome, error: BaseException | None) -> None:
        if not span.is_recording():
            return
        span.set_attribute(OUTCOME, type(outcome).__name__.lower())
        if isinstance(outcome, Reject):
            span.set_attribute(REASON, str(outcome.reason))
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
            # Its context is no message's creation context, so for readers it is no producer.
            kind=SpanKind.CLIENT,
            attributes={**known.attributes, BATCH_COUNT: len(self._messages)},
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
            attributes={**known.attributes, **message_attributes(message)},
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
            attributes={**known.attributes, **message_attributes(message)},
        )
        span.end()
        return set_span_in_context(span)
