"""Redrive: what a message looks like once its queue gave up on it."""

from __future__ import annotations

from datetime import UTC, datetime

from msgspec.structs import replace

from pump import headers
from pump.message import Message
from pump.outcome import RejectionReason


def dead_letter(message: Message, *, queue: str, attempt: int, wall_s: float) -> Message:
    """Return the message with its failure context (R21); id, body and the rest stay."""
    return replace(
        message,
        headers={
            **message.headers,
            headers.ORIGINAL_TOPIC: queue,
            headers.REJECTION_REASON: RejectionReason.DELIVERY_ERROR.value,
            headers.REJECTION_DETAIL: (
                f"max_receive_count of {queue!r} reached: delivered {attempt} time(s), "
                f"never completed"
            ),
            headers.REJECTION_TIMESTAMP: datetime.fromtimestamp(wall_s, UTC).isoformat(),
            headers.ORIGINAL_TYPE: message.type,
            headers.ATTEMPTS: str(attempt),
        },
    )
