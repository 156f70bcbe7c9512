"""A rejection router among fakes."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import attrs

from pump.errors import (
    StorageFailed,
)
from pump.message import Message
from pump.observability.telemetry import Counters
from pump.outcome import RejectionReason
from pump.rejection import RejectionRouter
from pump.services import Services
from pump.stores.spill import MemorySpill, SpilledMessage
from pump.testing.builders import a_subscription
from pump.testing.virtual_clock import VirtualClock

DELIVERY_ERROR = RejectionReason.DELIVERY_ERROR
UNACCEPTABLE = RejectionReason.UNACCEPTABLE


@attrs.define(eq=False)
class FakeProducer:
    """Takes messages, or fails as it is told to."""

    queue: str
    sent: list[Message] = attrs.field(factory=list)
    error: Exception | None = None
    hangs: bool = False
    is_closed: bool = False

    async def send(self, messages: Sequence[Message], *, delay_s: float = 0.0) -> Sequence[str]:
        assert delay_s == 0
        if self.hangs:
            await asyncio.Event().wait()
        if self.error is not None:
            raise self.error
        self.sent.extend(messages)
        return [message.id for message in messages]

    async def aclose(self) -> None:
        self.is_closed = True


class BrokenSpill(MemorySpill):
    """A disk that is full."""

    async def put(self, spilled: SpilledMessage) -> None:
        raise StorageFailed("/spill.db", "disk full")


class Bench:
    """A router among fakes."""

    def __init__(self, *, spill: MemorySpill | None = None, **subscription: Any) -> None:
        self.clock = VirtualClock(chance=0.0)
        self.producers: dict[str, FakeProducer] = {}
        self.made: list[str] = []
        self.creation_error: Exception | None = None
        self.send_error: Exception | None = None
        self.spill = spill or MemorySpill()
        self.counters = Counters()
        self.router = RejectionRouter(
            a_subscription(**subscription),
            producer_of=self._producer_of,
            spill=self.spill,
            services=Services(clock=self.clock),
            counters=self.counters,
        )

    def _producer_of(self, queue: str) -> FakeProducer:
        self.made.append(queue)
        if self.creation_error is not None:
            raise self.creation_error
        producer = self.producers[queue] = FakeProducer(queue, error=self.send_error)
        return producer
