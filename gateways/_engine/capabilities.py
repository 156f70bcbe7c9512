"""What every gateway on this engine can do; what it stores where is its own business."""

from __future__ import annotations

from pump.capabilities import Capabilities, OrderingMode

ENGINE = Capabilities(
    gateway="engine",
    ordering_modes=frozenset({OrderingMode.FIFO, OrderingMode.LIFO}),
    has_strict_order=True,
    has_groups=True,
    has_deduplication=True,
    has_native_redrive=True,
    has_uncounted_abandon=True,
    has_peek=True,
    has_purge=True,
    has_exact_stats=True,
    receive_batch=1000,
    settle_batch=10_000,
)
