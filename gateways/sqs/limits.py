"""Limits of SQS, each a figure of its documentation, and what follows for the pump."""

from __future__ import annotations

from typing import Final

from pump.capabilities import Capabilities

MAX_BATCH: Final = 10
"""Entries of one batch, and messages of one receive."""
MAX_BYTES: Final = 1_048_576
"""Body and attributes of one message, and of one batch together."""
MAX_ATTRIBUTES: Final = 10
"""Of one message."""
MAX_DELAY_S: Final = 900
MAX_VISIBILITY_S: Final = 43_200
"""Twelve hours, counted from the receive: extensions do not start it anew."""
MAX_LONG_POLL_S: Final = 20

SQS = Capabilities(
    gateway="sqs",
    # Order, groups, sessions and de-duplication are those of queues whose name ends in `.fifo`.
    has_strict_order=True,
    has_groups=True,
    has_deduplication=True,
    has_sessions=True,
    has_session_choice=False,
    has_native_redrive=True,
    has_purge=True,
    is_durable=True,
    is_shared=True,
    spans_machines=True,
    max_delay_s=MAX_DELAY_S,
    max_defer_s=MAX_VISIBILITY_S,
    max_lease_s=MAX_VISIBILITY_S,
    max_body_bytes=MAX_BYTES,
    receive_batch=MAX_BATCH,
    settle_batch=MAX_BATCH,
    # A request costs a hundred times what a message costs: a batch is worth a short wait.
    settle_linger_s=0.005,
    max_settle_calls=8,
    max_pollers=8,
    # Made of FIFO groups: SQS gives out none of a group while one of it is in flight.
    emulated=frozenset({"has_sessions"}),
)
