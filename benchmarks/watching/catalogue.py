"""Catalogue of the watched pumps: everything off, then one thing on at a time, then all."""

from __future__ import annotations

from ..contender import Contender, Group

_NEEDS = "pumphouse[crypto,ledger,otel]"
_WATCHES = (
    ("bare", "a build without the hooks", "bare", "tick"),
    ("off", "everything off", "", "tick"),
    ("logs", "logs", "logs", "tick"),
    ("metrics", "metrics", "metrics", "tick"),
    ("logs-metrics", "logs and metrics", "logs metrics", "tick"),
    ("traces", "traces", "traces", "tick"),
    ("ledger", "ledger", "ledger", "tick"),
    ("off-1k", "everything off, 1 KiB", "", "parcel"),
    ("encryption-1k", "encryption, 1 KiB", "encryption", "parcel"),
    ("all-1k", "all of it, 1 KiB", "logs metrics+traces ledger encryption", "parcel"),
)

SEALING = Contender(
    name="seal-1k",
    title="sealing and opening 1 KiB, alone",
    group=Group.WATCHED,
    module="seal_alone",
    needs=_NEEDS,
    share=0.2,
)
WATCHED_CONTENDERS = tuple(
    Contender(
        name=f"watched-{name}",
        title=title,
        group=Group.WATCHED,
        module="pump_watched",
        needs=_NEEDS,
        share=0.2,
        options={"watch": watch, "body": body},
    )
    for name, title, watch, body in _WATCHES
)
