"""One SQS server: messages through their whole life, in batches of ten, over many connections."""

from __future__ import annotations

from pathlib import Path

from ..reading import Reading
from ..servers.life import Clients, run_life
from ..servers.running import SERVERS

_WARM_UP = 0.05


def run(count: int, *, server: str, processes: int, connections: int) -> Reading:
    clients = Clients(processes=processes, connections=connections)
    with SERVERS[server](Path("data")) as running:
        run_life(running, max(100, round(count * _WARM_UP)), clients)
        return run_life(running, count, clients)
