"""Pumphouse on the local gateway: every accepted send and every ack survives a power cut."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

from gateways.local import LocalGateway

from ..reading import Reading
from .pump_app import measure


def run(count: int) -> Reading:
    with tempfile.TemporaryDirectory(dir=".") as folder:
        gateway = LocalGateway(Path(folder) / "queues")
        return asyncio.run(measure(gateway, count, is_batched=True))
