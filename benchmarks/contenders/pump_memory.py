"""Pumphouse on the memory gateway, posting in batches."""

from __future__ import annotations

from gateways.memory import MemoryGateway
from pump import event_loop

from ..reading import Reading
from .pump_app import measure


def run(count: int) -> Reading:
    return event_loop.run(measure(MemoryGateway(), count, is_batched=True))
