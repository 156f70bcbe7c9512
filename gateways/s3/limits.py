"""Limits of queues in objects, and what follows for the pump."""

from __future__ import annotations

from typing import Final

import attrs

from pump.capabilities import Capabilities, OrderingMode

from .layout import Layout

MAX_BODY_BYTES: Final = 1_048_576
"""Ours, not S3's: larger bodies belong into objects of their own, and messages name them."""

LEASES: Final = Capabilities(
    gateway="s3",
    ordering_modes=frozenset({OrderingMode.FIFO, OrderingMode.LIFO}),
    has_strict_order=True,
    has_native_redrive=True,
    has_uncounted_abandon=True,
    has_peek=True,
    has_purge=True,
    is_durable=True,
    is_shared=True,
    spans_machines=True,
    max_body_bytes=MAX_BODY_BYTES,
    receive_batch=50,
    # A request a message, all under way at once: a larger call would only end later.
    settle_batch=25,
    max_settle_calls=8,
    max_pollers=4,
)
"""Of queues with a lease a message."""

LOG: Final = attrs.evolve(
    LEASES,
    has_groups=True,
    has_deduplication=True,
    has_sessions=True,
    has_session_choice=True,
    has_exact_stats=True,
    # What comes while a commit is under way goes into the next one, of whatever call.
    receive_batch=1000,
    settle_batch=1000,
)
"""Of queues with group commit."""


def capabilities_of(layout: Layout) -> Capabilities:
    """What queues of a layout can do; a gateway says those of the layout it makes queues with."""
    return LOG if layout is Layout.LOG else LEASES
