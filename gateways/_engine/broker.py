"""What the ports need of an engine, be it in this process or behind a socket."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import attrs

from pump.message import Delivery, Message
from pump.outcome import Action
from pump.ports import QueueStats
from pump.subscription import MakeChannels, QueueSpec


# One method for each port method: the rule of five would only split it by name.
class Broker(Protocol):
    """Send, receive, settle and look after named queues; `Engine` documents each."""

    async def send(
        self, queue: str, messages: Sequence[Message], *, delay_s: float = 0.0
    ) -> list[str]:
        """Store messages."""

    async def receive(
        self, queue: str, *, max_count: int, wait_s: float, lease_s: float
    ) -> list[Delivery]:
        """Lease messages."""

    async def settle(
        self, queue: str, receipts: Sequence[str], actions: Sequence[Action]
    ) -> list[int]:
        """Settle by receipt; the positions of invalid ones come back."""

    async def extend(self, queue: str, receipts: Sequence[str], *, lease_s: float) -> list[int]:
        """Extend by receipt; the positions of invalid ones come back."""

    async def ensure(self, spec: QueueSpec, make: MakeChannels) -> None:
        """Create, validate or assume a queue."""

    async def queues(self) -> list[QueueStats]:
        """Count what is in every queue."""

    async def peek(self, queue: str, *, max_count: int) -> list[Message]:
        """Look at the next available messages."""

    async def purge(self, queue: str) -> int:
        """Remove every message."""


@attrs.frozen
class Grant:
    """A session that was accepted: its group, the token that proves it, and its first end."""

    session: str
    token: str
    expires_at_s: float


class SessionBroker(Protocol):
    """Accept, receive in, renew and release sessions; `EngineSessions` documents each."""

    async def accept(
        self, queue: str, session: str | None, *, wait_s: float, lease_s: float
    ) -> Grant | None:
        """Lock a session."""

    async def receive(
        self, queue: str, grant: Grant, *, max_count: int, wait_s: float
    ) -> list[Delivery]:
        """Lease messages of a session."""

    async def renew(self, queue: str, grant: Grant, *, lease_s: float) -> float:
        """Keep a session, and say until when."""

    async def release(self, queue: str, grant: Grant) -> None:
        """Let go of a session."""
