"""The SQS servers: `pump local` beside those that people test with, under the same clients."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from .contender import Contender, Group

_ROUNDS = 3
"""Starting the servers takes about as long as measuring them."""
_TITLES = {
    "pump-local": "pump local",
    "localstack": "LocalStack",
    "moto": "moto server",
    "bare": "bare server",
}
_NEEDS = {
    "pump-local": "pumphouse[local]",
    "localstack": "localstack-core",
    "moto": "moto",
    "bare": "pumphouse[local]",
}
_NOTES = {
    "pump-local": "every send on the disk",
    "localstack": "in memory",
    "moto": "in memory",
    "bare": "the machine's share: fdatasync, no SQS",
}
# Share of the messages, processes and connections each. More connections do not make LocalStack
# faster; moto becomes slower with a second one, and then also loses deletes.
_LIFE: Mapping[str, tuple[float, int, int]] = {
    "pump-local": (0.8, 2, 8),
    "localstack": (0.08, 1, 4),
    "moto": (0.02, 1, 1),
}
_FULL_RATE = 1_000.0
# Moto and LocalStack get a rate at which they do not fall behind.
_LATENCY: Mapping[str, tuple[float, float]] = {
    "bare": (0.08, 1_000.0),
    "pump-local": (0.08, 1_000.0),
    "localstack": (0.008, 100.0),
    "moto": (0.004, 50.0),
}


def _contender(kind: str, server: str) -> Contender:
    return Contender(
        name=f"{kind}-{server}",
        title=_TITLES[server],
        group=Group.SQS_SERVERS,
        module=f"server_{kind}",
        needs=_NEEDS[server],
        note=_NOTES[server],
        warms_up_itself=True,
    )


def _life(server: str, share: float, processes: int, connections: int) -> Contender:
    return attrs.evolve(
        _contender("life", server),
        share=share,
        max_rounds=_ROUNDS,
        options={"server": server, "processes": processes, "connections": connections},
    )


def _latency(server: str, share: float, rate: float) -> Contender:
    return attrs.evolve(
        _contender("latency", server),
        share=share,
        max_rounds=_ROUNDS if rate >= _FULL_RATE else 1,
        options={"server": server, "rate": rate},
    )


SQS_SERVERS = (
    *(_life(server, *options) for server, options in _LIFE.items()),
    *(_latency(server, *options) for server, options in _LATENCY.items()),
    attrs.evolve(_contender("pending", "pump-local"), share=20.0, max_rounds=1),
)
