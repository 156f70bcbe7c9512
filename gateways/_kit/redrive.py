"""Redrive: what a message looks like once its queue gave up on it."""

from __future__ import annotations

from datetime import UTC, datetime

from msgspec.structs import replace

from pump import headers
from pump.message import Message
from pump.outcome import RejectionReason


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
