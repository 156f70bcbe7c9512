"""Figures of a run, of which a test names only what it is about."""

from typing import Any

from pump.bench.report import Calls, EndReason, Measured, MeasuredSettings, Spread, spread_of


def measured(**fields: Any) -> Measured:
    """A thousand messages in ten seconds, all well, at rest for most of the time."""
    values: dict[str, Any] = {
        "rate": None,
        "sent": 1_000,
        "send_s": 1.0,
        "handled": 1_000,
        "rejected": 0,
        "retried": 0,
        "lost": 0,
        "wall_s": 10.0,
        "cpu_s": 2.0,
        "busy_s": 20.0,
        "latency": spread(0.1),
        "run": spread(0.02),
        "calls": Calls(receives=100, received=1_000, settles=100, settled=1_000),
        "requests": None,
        "send_requests": None,
        "timeline": ((1.0, 500), (10.0, 500)),
        "errors": {},
        "ended": EndReason.ALL,
    }
    return Measured(**{**values, **fields})


def settings(**fields: Any) -> MeasuredSettings:
    """Ten at once, on a broker of another machine that hands out ten at a time."""
    values: dict[str, Any] = {
        "concurrency": 10,
        "prefetch": None,
        "lease_s": 30.0,
        "renew": True,
        "ordering_guarantee": False,
        "in_hand": 20,
        "receive_batch": 10,
        "is_remote": True,
    }
    return MeasuredSettings(**{**values, **fields})


def spread(seconds: float) -> Spread:
    """Durations that are all the same."""
    found = spread_of([seconds])
    assert found is not None
    return found
