"""Ports: what a gateway implements. Everything above this line is the same for all brokers.

A gateway's constructor performs no I/O; `open` does. Errors are `pump.errors`, translated at
the gateway's edge. No port method may swallow a cancellation.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import attrs

from .capabilities import Capabilities
from .message import Delivery, Message
from .outcome import Refusal, Settlement
from .subscription import MakeChannels, QueueSpec, Subscription


class ConsumerPort(Protocol):
    """Receives from one queue and settles what it received."""

    async def receive(self, *, max_count: int, wait_s: float) -> Sequence[Delivery]:
        """Return up to `max_count` deliveries, as soon as there is one, at the latest empty
        after `wait_s`.

        Each lease starts at receipt. Cancelling hides nothing: what was leased but not
        returned is made available again.
        """

    async def settle(self, settlements: Sequence[Settlement]) -> Sequence[Refusal]:
        """Apply each settlement at most once and return those the broker refused.

        A confirmed settlement is durable where the gateway is. Safe to call again with the
        refused ones; a final refusal (`Refusal.is_final`) means the broker owns the message
        again. An error raised means that nothing is known of the whole batch.
        """

    async def extend(self, deliveries: Sequence[Delivery], *, lease_s: float) -> Sequence[Refusal]:
        """Make each lease end `lease_s` from now, and return those that were refused."""

    async def aclose(self) -> None:
        """Let go of the connection; leases that were not settled run out by themselves."""


class ProducerPort(Protocol):
    """Sends to one queue."""

    async def send(self, messages: Sequence[Message], *, delay_s: float = 0.0) -> Sequence[str]:
        """Send all and return their ids once each is as durable as the gateway makes it.

        Chunks by the provider's limits. `QueueNotFound` when there is no queue; `SendFailed`,
        which names each failed message, when only some were refused.
        """

    async def aclose(self) -> None:
        """Let go of the connection."""


@attrs.frozen(kw_only=True)
class QueueStats:
    """What is in a queue now. Providers that only estimate say so in their documentation."""

    name: str
    visible: int
    in_flight: int
    delayed: int = 0
    oldest_age_s: float | None = None


class AdminPort(Protocol):
    """Looks after queues, for the command line and for opening a subscription."""

    async def ensure(self, spec: QueueSpec, make: MakeChannels) -> None:
        """Create the queue, or check that it exists and fits, or do nothing.

        Raises `QueueNotFound` and `QueueMismatch` when validating.
        """

    async def queues(self) -> Sequence[QueueStats]:
        """Every queue there is, by name."""

    async def peek(self, queue: str, *, max_count: int = 10) -> Sequence[Message]:
        """Look at the next messages without receiving them: no lease, no attempt."""

    async def purge(self, queue: str) -> int:
        """Remove every message and return how many there were."""


@runtime_checkable
class Gateway(Protocol):
    """One broker."""

    @property
    def capabilities(self) -> Capabilities:
        """What this broker can do."""

    async def open(self) -> None:
        """Connect. Idempotent; raises `ConnectionFailed` or `ConfigurationError`."""

    async def aclose(self) -> None:
        """Close everything that was made by this gateway. Idempotent."""

    def consumer(self, subscription: Subscription) -> ConsumerPort:
        """A consumer of the subscription's queue. Performs no I/O."""

    def producer(self, queue: str) -> ProducerPort:
        """A producer for a queue. Performs no I/O."""

    def admin(self) -> AdminPort:
        """The caretaker of this gateway's queues. Performs no I/O."""
