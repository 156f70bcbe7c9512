"""Tracing: the `Telemetry` that makes spans, by OpenTelemetry's messaging conventions.

| span      | kind     | belongs to the trace of                                             |
|-----------|----------|---------------------------------------------------------------------|
| `create`  | producer | whoever sends; one a message of a batch, and what the message carries |
| `send`    | producer | whoever sends; what a single message carries (client for a batch)   |
| `receive` | client   | the sender, if all messages come from one trace; else one of its own |
| `process` | consumer | the sender                                                          |
| `settle`  | client   | as `receive`                                                        |

`receive` and `settle` link to what created each of their messages. An empty receive makes no span.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

import attrs
from opentelemetry.context import Context
from opentelemetry.propagators.textmap import TextMapPropagator
from opentelemetry.trace import Span, SpanKind, Tracer, TracerProvider, get_current_span

from ...clock import SYSTEM_CLOCK, Clock
from ...message import Delivery, Message
from ...outcome import Settlement
from ..messaging_system import messaging_system
from . import attributes as names
from .failures import record_failure
from .propagation import Propagation, links_to
from .spans import ProcessSpan, SendSpan, SettleSpan
from .trouble import Trouble

if TYPE_CHECKING:
    from ...loop.ending import Ending
    from ...subscription import Subscription
    from ..counters import Counters

SCOPE = "pumphouse"
_NANOSECONDS = 1_000_000_000


def own_version() -> str:
    """Ours, as installed; empty when it is not."""
    try:
        return version("pumphouse")
    except PackageNotFoundError:
        return ""


@attrs.frozen
class Known:
    """What all spans of one operation on one queue have in common."""

    title: str
    attributes: names.Attributes


class Tracing:
    """Makes spans through a provider that somebody else owns."""

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
        self._known: dict[tuple[str, str], Known] = {}

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

    def watching(self, subscription: Subscription, in_hand: Callable[[], int]) -> None:
        """No span."""

    def settled(self, subscription: Subscription, endings: Sequence[Ending]) -> None:
        """No span."""

    def extended(self, subscription: Subscription, count: int) -> None:
        """No span."""

    def lost(self, subscription: Subscription, delivery: Delivery) -> None:
        """No span: that of its handler ends as cancelled."""

    def spilled(self, count: int) -> None:
        """No span."""

    # -- for the spans -----------------------------------------------------------------------------

    def known(self, operation: str, queue: str) -> Known:
        """What every span of this operation says."""
        found = self._known.get((operation, queue))
        if found is None:
            found = self._known[operation, queue] = Known(
                f"{operation} {queue}",
                {
                    names.SYSTEM: self._system,
                    names.DESTINATION: queue,
                    names.OPERATION_NAME: operation,
                    names.OPERATION_TYPE: operation,
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
            about = names.message_attributes(deliveries[0].message)
        else:
            about = {names.BATCH_COUNT: len(deliveries)}
        is_one_trace = len({each and each.trace_id for each in creators}) == 1
        return self.tracer.start_span(
            known.title,
            context=origins[0][0] if is_one_trace else Context(),
            kind=SpanKind.CLIENT,
            attributes={**known.attributes, **about},
            links=links_to(creators),
            start_time=None if began_s is None else int(began_s * _NANOSECONDS),
        )
