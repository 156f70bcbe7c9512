"""What a mapping needs of the server: four operations of its engine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from ..model import QueueAddress, Received


class QueueEngine(Protocol):
    """The engine, as far as a poller uses it. A queue is whatever `find` returns (hence Any).

    Any of these raises StorageFailed when the disk refuses, and SqsError when SQS would.
    """

    def find(self, address: QueueAddress) -> Any:
        """The queue, with its `settings`; None when there is none now."""

    async def receive(
        self, queue: Any, *, max_count: int, wait_s: float, visibility_s: int, is_inside: bool
    ) -> list[Received]:
        """Up to `max_count` messages, as soon as there is one. Cancelled, it hides nothing.

        Of a receiver that `is_inside`, a crash of the server leaves nothing in flight.
        """

    async def delete(self, queue: Any, receipts: Sequence[str]) -> Sequence[object | None]:
        """For each receipt, None or why it was refused."""

    async def change_visibility(
        self, queue: Any, changes: Sequence[tuple[str, int]]
    ) -> Sequence[object | None]:
        """Hide each message for so many seconds more; 0 shows it at once."""
