"""Pumphouse on the local gateway: every accepted send and every ack survives a power cut."""

from __future__ import annotations

import tempfile
from pathlib import Path

from gateways.local import LocalGateway
from pump import event_loop

from ..reading import Reading
from .pump_app import measure


def run(count: int) -> Reading:
    with tempfile.TemporaryDirectory(dir=".") as folder:
        gateway = LocalGateway(Path(folder) / "queues")
        return event_loop.run(measure(gateway, count, is_batched=True))
