"""Meter: listens to the pump as its telemetry, and keeps what a report is made of.

Only what costs little: a clock's reading and a few appends a message. Once stopped it hears
nothing more, so what a drain does afterwards is no part of a measurement.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from types import TracebackType
from typing import TYPE_CHECKING

from ..clock import Clock
from ..message import Delivery, Message
from ..observability.telemetry import Counters
from ..outcome import Abandon, Ack, Outcome, Settlement
from .pricing import Calls

if TYPE_CHECKING:
    from ..loop.processing import DeliveryResult
    from ..subscription import Subscription

_NOTHING: AbstractContextManager[None] = nullcontext()


class Meter:
    """A `Telemetry` for one run on one subscription."""

    def __init__(self, clock: Clock) -> None:
        self._now_s = clock.now_s
        self._due_s: dict[str, float] = {}
        self._is_stopped = False
        self.on_settled: Callable[[], None] | None = None
        """Called after each settle call that ended a message of ours."""
        self.latencies_s: list[float] = []
        self.run_times_s: list[float] = []
        self.handled = self.rejected = self.retried = self.lost_count = 0
        self._sends = self._receives = self._empty_receives = self._received = 0
        self._settles = self._settled = self._extends = 0
        self.timeline: list[tuple[float, int]] = []
        """When messages were settled, and how many."""
        self.errors: Counter[str] = Counter()

    # -- what the run says -------------------------------------------------------------------

    def expect(self, due_s: Mapping[str, float]) -> None:
        """These messages, by id, were due to be sent at these moments."""
        self._due_s.update(due_s)

    def give_up(self, ids: Iterable[str]) -> None:
        """These were not sent after all."""
        for each in ids:
            self._due_s.pop(each, None)

    def stop(self) -> None:
        """Hear nothing more."""
        self._is_stopped = True

    @property
    def calls(self) -> Calls:
        """What the pump asked of its gateway so far."""
        return Calls(
            sends=self._sends,
            receives=self._receives,
            empty_receives=self._empty_receives,
            settles=self._settles,
            extends=self._extends,
            received=self._received,
            settled=self._settled,
        )

    @property
    def outstanding(self) -> int:
        """Messages of ours that are in their queue, or in flight."""
        return len(self._due_s)

    @property
    def done(self) -> int:
        """Messages of ours that have left their queue for good."""
        return self.handled + self.rejected

    # -- what the pump says ------------------------------------------------------------------

    async def start(
        self, counters: Counters, gateway: str, *, clock: Clock, counts_messages: bool
    ) -> None:
        """Nothing to open."""

    async def flush(self) -> None:
        """Nothing to send."""

    async def aclose(self) -> None:
        """Nothing to close."""

    def sending(
        self, queue: str, messages: Sequence[Message], *, is_copy: bool = False
    ) -> AbstractContextManager[Sequence[Message]]:
        self._sends += not self._is_stopped
        return nullcontext(messages)

    def received(
        self, subscription: Subscription, deliveries: Sequence[Delivery], *, waited_s: float | None
    ) -> None:
        if self._is_stopped:
            return
        self._receives += 1
        self._empty_receives += not deliveries
        self._received += len(deliveries)

    def watching(self, subscription: Subscription, in_hand: Callable[[], int]) -> None:
        """Levels are no part of a report."""

    def processing(self, subscription: Subscription, delivery: Delivery) -> Handling:
        return Handling(self, delivery.message.id)

    def settling(
        self, subscription: Subscription, settlements: Sequence[Settlement]
    ) -> AbstractContextManager[None]:
        if not self._is_stopped:
            self._settles += 1
            self._settled += len(settlements)
        return _NOTHING

    def settled(self, subscription: Subscription, results: Sequence[DeliveryResult]) -> None:
        if self._is_stopped:
            return
        before = self.done
        for result in results:
            if type(result.outcome) is not Abandon:
                self._note(result)
        if self.done > before:
            self.timeline.append((self._now_s(), self.done - before))
            if self.on_settled is not None:
                self.on_settled()

    def extended(self, subscription: Subscription, count: int) -> None:
        self._extends += not self._is_stopped

    def lost(self, subscription: Subscription, delivery: Delivery) -> None:
        self.lost_count += not self._is_stopped

    def failed(self, operation: str, queue: str, error: BaseException) -> None:
        if not self._is_stopped:
            self.errors[f"{operation}: {type(error).__name__}"] += 1

    def spilled(self, count: int) -> None:
        """A run spills into memory, and that is thrown away."""

    # -- one message ---------------------------------------------------------------------------

    def note_handled(self, message_id: str) -> None:
        """Its handlers have come to their end, and all is well."""
        due_s = self._due_s.get(message_id)
        if due_s is not None and not self._is_stopped:
            self.latencies_s.append(self._now_s() - due_s)

    def _note(self, result: DeliveryResult) -> None:
        self.run_times_s.append(result.run_s)
        if result.error is not None:
            # By its type alone: its text may quote a body.
            self.errors[f"handler: {type(result.error).__name__}"] += 1
        if type(result.action) is not Ack:
            self.retried += 1
        elif self._due_s.pop(result.delivery.message.id, None) is not None:
            if type(result.outcome) is Ack:
                self.handled += 1
            else:
                self.rejected += 1


class Handling:
    """One delivery in the hands of its handlers."""

    __slots__ = ("_message_id", "_meter")

    def __init__(self, meter: Meter, message_id: str) -> None:
        self._meter = meter
        self._message_id = message_id

    def __enter__(self) -> Handling:
        return self

    def ended(self, outcome: Outcome, error: BaseException | None) -> None:
        if type(outcome) is Ack:
            self._meter.note_handled(self._message_id)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
        /,
    ) -> None:
        """Nothing more to say."""
