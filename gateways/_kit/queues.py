"""Queues: what is checked of a spec, all of them at a glance, and how dead letters look."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime
from typing import Final, TypeVar

from msgspec.structs import replace

from pump import headers
from pump.errors import ConfigurationError, QueueNotFound
from pump.message import Message
from pump.outcome import RejectionReason
from pump.ports import QueueStats
from pump.subscription import QueueSpec

Q = TypeVar("Q")

MAX_LOOKS: Final = 8
"""How many queues are asked at once for what they hold."""


def check_redrive(spec: QueueSpec) -> None:
    """Raise `ConfigurationError` for a limit that moves messages nowhere."""
    limit = spec.max_receive_count
    if limit is None:
        return
    if limit < 1:
        raise ConfigurationError("QueueSpec.max_receive_count", limit, "use 1 or more")
    if not spec.dead_letter_queue or spec.dead_letter_queue == spec.name:
        raise ConfigurationError(
            "QueueSpec.dead_letter_queue",
            spec.dead_letter_queue,
            "max_receive_count needs another queue to move messages to",
        )


async def stats_of_all(
    queues: AsyncIterator[Q], look: Callable[[Q], Awaitable[QueueStats]], *, gateway: str
) -> list[QueueStats]:
    """What each queue holds, by name; left out are those deleted since they were listed."""
    gate = asyncio.Semaphore(MAX_LOOKS)

    async def one(queue: Q) -> QueueStats | None:
        async with gate:
            try:
                return await look(queue)
            except QueueNotFound:
                return None

    try:
        async with asyncio.TaskGroup() as group:
            looks = [
                group.create_task(one(queue), name=f"{gateway} stats") async for queue in queues
            ]
    except ExceptionGroup as failures:
        # The others were cancelled, or failed of the same cause.
        raise failures.exceptions[0] from None
    found = [stats for each in looks if (stats := each.result()) is not None]
    return sorted(found, key=lambda stats: stats.name)


def dead_letter(
    message: Message, *, queue: str, attempt: int, wall_s: float, native: str | None = None
) -> Message:
    """Return the message with its failure context (R21); id, body and the rest stay."""
    typed = {} if native is None else {headers.NATIVE: native}
    return replace(
        message,
        headers={
            **message.headers,
            **typed,
            headers.ORIGINAL_TOPIC: queue,
            headers.REJECTION_REASON: RejectionReason.DELIVERY_ERROR.value,
            headers.REJECTION_DETAIL: (
                f"max_receive_count of {queue!r} reached: delivered {attempt} time(s), "
                f"never completed"
            ),
            headers.REJECTION_TIMESTAMP: datetime.fromtimestamp(wall_s, UTC).isoformat(),
            headers.ORIGINAL_TYPE: headers.original_type(message.type, message.headers),
            headers.ATTEMPTS: str(attempt),
        },
    )
