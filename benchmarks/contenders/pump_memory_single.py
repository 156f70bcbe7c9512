"""Pumphouse on the memory gateway, each request posted and awaited by itself."""

from __future__ import annotations

import asyncio

from gateways.memory import MemoryGateway

from ..reading import Reading
from .pump_app import measure


def run(count: int) -> Reading:
    return asyncio.run(measure(MemoryGateway(), count, is_batched=False))
