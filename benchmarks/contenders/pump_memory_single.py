"""Pumphouse on the memory gateway, each request posted and awaited by itself."""

from __future__ import annotations

from gateways.memory import MemoryGateway
from pump import event_loop

from ..reading import Reading
from .pump_app import measure


def run(count: int) -> Reading:
    return event_loop.run(measure(MemoryGateway(), count, is_batched=False))
