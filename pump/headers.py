"""Header names: the only place that spells them.

The rejection names are Brighter's: we read its dead letters, and it reads ours where headers
travel one by one (on SQS they are packed).
"""

from __future__ import annotations

from typing import Final

ORIGINAL_TOPIC: Final = "originalTopic"
REJECTION_REASON: Final = "rejectionReason"
REJECTION_DETAIL: Final = "rejectionMessage"
REJECTION_TIMESTAMP: Final = "rejectionTimestamp"
ORIGINAL_TYPE: Final = "originalMessageType"
ATTEMPTS: Final = "attempts"

TRACE_PARENT: Final = "traceparent"
TRACE_STATE: Final = "tracestate"

CLAIM: Final = "claimCheck"
"""Where the body waits that was too large to travel. Only gateways write and read it."""

REJECTION_NAMES: Final = frozenset(
    {
        ORIGINAL_TOPIC,
        REJECTION_REASON,
        REJECTION_DETAIL,
        REJECTION_TIMESTAMP,
        ORIGINAL_TYPE,
        ATTEMPTS,
    }
)
"""What routing adds. A redrive leaves them on: the timestamp of the rejection before is what
tells a message rejected again from the same rejection done twice (`rejection.copy_id`)."""
