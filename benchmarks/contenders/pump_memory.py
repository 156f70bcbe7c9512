"""Pumphouse on the memory gateway, posting in batches."""

from __future__ import annotations

import asyncio

from gateways.memory import MemoryGateway

from ..reading import Reading
from .pump_app import measure


def run(count: int) -> Reading:
    return asyncio.run(measure(MemoryGateway(), count, is_batched=True))
