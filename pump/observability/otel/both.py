"""Both: metrics and traces, told the same."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from types import TracebackType
from typing import TYPE_CHECKING, Generic, Self, TypeVar

from ...message import Delivery, Message
from ...outcome import Outcome, Settlement
from ..metrics import Metrics
from ..telemetry import Processing
from .tracing import Tracing

if TYPE_CHECKING:
    from ...clock import Clock
    from ...loop.ending import Ending
    from ...subscription import Subscription
    from ..counters import Counters

_T = TypeVar("_T")


class Both:
    """A `Telemetry` made of two. What is measured includes what tracing takes."""

    def __init__(self, metrics: Metrics, tracing: Tracing) -> None:
        self._metrics = metrics
        self._tracing = tracing

    async def start(
        self, counters: Counters, gateway: str, *, clock: Clock, counts_messages: bool
    ) -> None:
        for each in (self._tracing, self._metrics):
            await each.start(counters, gateway, clock=clock, counts_messages=counts_messages)

    async def flush(self) -> None:
        """Nothing to do: both keep everything with their provider."""

    async def aclose(self) -> None:
        await self._metrics.aclose()

    def sending(
        self, queue: str, messages: Sequence[Message], *, is_copy: bool = False
    ) -> AbstractContextManager[Sequence[Message]]:
        return _Nested(
            self._metrics.sending(queue, messages, is_copy=is_copy),
            self._tracing.sending(queue, messages, is_copy=is_copy),
        )

    def received(
        self, subscription: Subscription, deliveries: Sequence[Delivery], *, waited_s: float | None
    ) -> None:
        self._metrics.received(subscription, deliveries, waited_s=waited_s)
        self._tracing.received(subscription, deliveries, waited_s=waited_s)

    def watching(self, subscription: Subscription, in_hand: Callable[[], int]) -> None:
        self._metrics.watching(subscription, in_hand)

    def processing(self, subscription: Subscription, delivery: Delivery) -> Processing:
        return _NestedProcessing(
            self._metrics.processing(subscription, delivery),
            self._tracing.processing(subscription, delivery),
        )

    def settling(
        self, subscription: Subscription, settlements: Sequence[Settlement]
    ) -> AbstractContextManager[None]:
        return _Nested(
            self._metrics.settling(subscription, settlements),
            self._tracing.settling(subscription, settlements),
        )

    def settled(self, subscription: Subscription, endings: Sequence[Ending]) -> None:
        self._metrics.settled(subscription, endings)

    def extended(self, subscription: Subscription, count: int) -> None:
        self._metrics.extended(subscription, count)

    def lost(self, subscription: Subscription, delivery: Delivery) -> None:
        self._metrics.lost(subscription, delivery)

    def failed(self, operation: str, queue: str, error: BaseException) -> None:
        self._metrics.failed(operation, queue, error)
        self._tracing.failed(operation, queue, error)

    def spilled(self, count: int) -> None:
        self._metrics.spilled(count)


class _Nested(Generic[_T]):
    """One context manager inside another; gives what the inner one gives. Neither raises."""

    __slots__ = ("_inner", "_outer")

    def __init__(
        self, outer: AbstractContextManager[_T], inner: AbstractContextManager[_T]
    ) -> None:
        self._outer = outer
        self._inner = inner

    def __enter__(self) -> _T:
        self._outer.__enter__()
        return self._inner.__enter__()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._inner.__exit__(kind, error, trace)
        self._outer.__exit__(kind, error, trace)


class _NestedProcessing:
    __slots__ = ("_inner", "_outer")

    def __init__(self, outer: Processing, inner: Processing) -> None:
        self._outer = outer
        self._inner = inner

    def __enter__(self) -> Self:
        self._outer.__enter__()
        self._inner.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._inner.__exit__(kind, error, trace)
        self._outer.__exit__(kind, error, trace)

    def ended(self, outcome: Outcome, error: BaseException | None) -> None:
        self._inner.ended(outcome, error)
        self._outer.ended(outcome, error)
