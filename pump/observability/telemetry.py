"""Telemetry: what the core tells metrics and traces.

The core holds a `Telemetry | None` and asks `is not None` where it has something to tell: an app
that configured nothing pays for that question, and for nothing else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from ..clock import Clock
from ..errors import members_of
from ..message import Delivery, Message
from ..outcome import Outcome, Reject, Settlement, carries_signal
from ..subscription import Subscription

if TYPE_CHECKING:
    from ..loop.processing import DeliveryResult

# Counters: what happened how often, by label. Owned by an app, read by exporters.

Labels = tuple[tuple[str, str], ...]
"""Names and values, sorted by name."""


class Counter:
    """One ever-growing number; frequent counters hold one, and pay for an addition only."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0

    def add(self, amount: int = 1) -> None:
        """Count `amount` more."""
        self.value += amount


class Counters:
    """Named, labelled, ever-growing numbers; changed on the event loop's thread only, and read
    from any.
    """

    def __init__(self) -> None:
        self._series: dict[tuple[str, Labels], Counter] = {}
        self._names: set[str] = set()
        self._on_name: list[Callable[[str], object]] = []

    def series(self, name: str, **labels: str) -> Counter:
        """The series of `name` with exactly these labels; it starts at zero."""
        key = name, tuple(sorted(labels.items()))
        found = self._series.get(key)
        if found is None:
            found = self._series[key] = Counter()
            self._note(name)
        return found

    def add(self, name: str, amount: int = 1, **labels: str) -> None:
        """Count `amount` more of `name`."""
        self.series(name, **labels).value += amount

    def value(self, name: str, **labels: str) -> int:
        """The sum over all series of `name` that carry these labels."""
        wanted = set(labels.items())
        return sum(
            value
            for (known, having), value in self.snapshot().items()
            if known == name and wanted <= set(having)
        )

    def snapshot(self) -> Mapping[tuple[str, Labels], int]:
        """A copy of every series."""
        # One call into C takes the copy, so a thread that reads sees no dict in mid-change.
        return {key: series.value for key, series in list(self._series.items())}

    def tell_names(self, listener: Callable[[str], object]) -> None:
        """Have `listener` called with every name that is counted, now or later, once."""
        if listener not in self._on_name:
            self._on_name.append(listener)
        for name in sorted(self._names):
            listener(name)

    def _note(self, name: str) -> None:
        if name not in self._names:
            self._names.add(name)
            for listener in self._on_name:
                listener(name)


class Processing(Protocol):
    """One delivery in the hands of its handlers; a context manager around them.

    What handlers send meanwhile belongs to the same trace.
    """

    def __enter__(self) -> Processing: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
        /,
    ) -> None: ...

    def ended(self, outcome: Outcome, error: BaseException | None) -> None:
        """Handling is over, and this is what becomes of the message. Not called when the handler
        was cancelled because its lease was lost, or its process stops.
        """


class Telemetry(Protocol):
    """Told of everything, on the event loop's thread. Must not raise, nor wait."""

    async def start(
        self, counters: Counters, gateway: str, *, clock: Clock, counts_messages: bool
    ) -> None:
        """The app opens; `gateway` is its scheme. `counters` holds what the core itself counts.

        Unless `counts_messages`, another part counts what is sent and received: an encryption,
        which knows what was encrypted. The only call that may raise, `ConfigurationError`, and then
        nothing is left open.
        """

    async def flush(self) -> None:
        """Send what there is, within a second or so: the process may be frozen afterwards."""

    async def aclose(self) -> None:
        """The app has closed: send what is left, within a few seconds."""

    def sending(
        self, queue: str, messages: Sequence[Message], *, is_copy: bool = False
    ) -> AbstractContextManager[Sequence[Message]]:
        """Around a send; gives the messages to send, with the trace's context in their headers.

        `is_copy` for rejected messages on their way to another queue: they were sent before, and
        are counted as rejected.
        """

    def received(
        self, subscription: Subscription, deliveries: Sequence[Delivery], *, waited_s: float | None
    ) -> None:
        """A receive returned, with messages or without, after this long; None when it was no poll,
        and the provider handed them over by itself.
        """

    def watching(self, subscription: Subscription, in_flight: Callable[[], int]) -> None:
        """Ask `in_flight` from now on how many of the subscription's messages are in flight."""

    def processing(self, subscription: Subscription, delivery: Delivery) -> Processing:
        """Around decoding and handling one delivery."""

    def settling(
        self, subscription: Subscription, settlements: Sequence[Settlement]
    ) -> AbstractContextManager[None]:
        """Around one settle call."""

    def settled(self, subscription: Subscription, results: Sequence[DeliveryResult]) -> None:
        """The broker confirmed these."""

    def extended(self, subscription: Subscription, count: int) -> None:
        """So many leases were extended."""

    def lost(self, subscription: Subscription, delivery: Delivery) -> None:
        """A lease was lost."""

    def failed(self, operation: str, queue: str, error: BaseException) -> None:
        """A call to the broker failed: `receive`, `extend`, `route`; sends and settle calls are
        told by the exception that leaves their context manager.
        """

    def spilled(self, count: int) -> None:
        """So many messages wait in the spill store."""


@runtime_checkable
class TextMetrics(Protocol):
    """A telemetry may be one too: its metrics can be had as text, from any thread."""

    def prometheus_text(self) -> bytes:
        """Every metric in Prometheus' text format, as `metrics_catalogue.CONTENT_TYPE` says."""


# Failure names: what an error is called in metrics and on spans. Its text stays out of both:
# texts quote bodies.

CANCELLED = "cancelled"
"""A call or handler that was cut short; from inside, a timeout looks the same."""


def failure_name(error: BaseException) -> str:
    """The name of the error's class; for a group of one, that of its only member."""
    while len(members := members_of(error)) == 1:
        [error] = members
    return CANCELLED if isinstance(error, asyncio.CancelledError) else type(error).__name__


def is_failed(outcome: Outcome, error: BaseException | None) -> bool:
    """Whether handling failed: it raised, or the message was rejected. A handler that asks for
    a delay has not failed.
    """
    if error is None:
        return False
    return isinstance(outcome, Reject) or not carries_signal(error)


# Messaging system: what OpenTelemetry's conventions call the broker behind a gateway.

_SYSTEMS = {
    "sqs": "aws_sqs",
    "amqp": "rabbitmq",
    "sb": "servicebus",
    "postgres": "postgresql",
    # The conventions know no name for these; ours carry our own prefix or product name.
    "nats": "nats",
    "memory": "pumphouse_memory",
    "local": "pumphouse_local",
    "s3": "pumphouse_s3",
}


def messaging_system(gateway: str) -> str:
    """The value of `messaging.system` for a gateway's scheme; a foreign scheme names itself."""
    return _SYSTEMS.get(gateway, gateway)
