"""One SQS server: single messages at a steady rate, while another client waits for them."""

from __future__ import annotations

from pathlib import Path

from ..reading import Reading
from ..servers.latency import run_latency
from ..servers.running import SERVERS

_WARM_UP = 0.1


def run(count: int, *, server: str, rate: float) -> Reading:
    with SERVERS[server](Path("data")) as running:
        run_latency(running, max(20, round(count * _WARM_UP)), rate=rate)
        return run_latency(running, count, rate=rate)
