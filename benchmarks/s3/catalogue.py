"""Catalogue of queues on S3: both layouts and the naive design, near and 60 ms away. And aims."""

from __future__ import annotations

import attrs

from ..contender import Contender, Group
from ..reading import Reading
from ..server_aims import Limit

FAR_MS = 60.0
_ROUNDS = 2
"""With 60 ms a request most of the time is waiting, which differs little from round to round."""
_TITLES = {
    "naive": "naive, raw aioboto3",
    "leases": "Pumphouse S3, layout leases",
    "log": "Pumphouse S3, layout log",
}
_NEEDS = "pumphouse[s3,local]"
_NEAR_SHARES = {"naive": 0.016, "leases": 0.032, "log": 0.2}
# Share of the messages by design, consumers and processes: each runs some ten seconds.
_FAR = (
    ("naive", 1, 1, 0.0008),
    ("naive", 10, 1, 0.006),
    ("naive", 100, 1, 0.032),
    ("leases", 1, 1, 0.008),
    ("leases", 10, 1, 0.016),
    ("leases", 100, 1, 0.032),
    ("leases", 100, 4, 0.032),
    ("log", 1, 1, 0.08),
    ("log", 10, 1, 0.16),
    ("log", 100, 1, 0.2),
    ("log", 100, 4, 0.2),
)


def _near(design: str, share: float) -> Contender:
    return Contender(
        name=f"s3-{design}",
        title=_TITLES[design],
        group=Group.S3,
        module="s3_queue",
        share=share,
        needs=_NEEDS,
        max_rounds=_ROUNDS,
        warms_up_itself=True,
        options={"design": design, "consumers": 10},
        note="unfenced" if design == "naive" else "",
    )


def _far(design: str, consumers: int, processes: int, share: float) -> Contender:
    near = _near(design, share)
    spread = f"-in-{processes}" if processes > 1 else ""
    return attrs.evolve(
        near,
        name=f"{near.name}-far-{consumers}{spread}",
        options={
            "design": design,
            "consumers": consumers,
            "processes": processes,
            "latency_ms": FAR_MS,
        },
    )


NEAR = tuple(_near(design, share) for design, share in _NEAR_SHARES.items())
FAR = tuple(_far(*each) for each in _FAR)
S3_CONTENDERS = (*NEAR, *FAR)


def billable(reading: Reading) -> float:
    """Requests a message that cost something: removing is free."""
    return (
        sum(count for kind, count in reading.calls.items() if kind != "delete") / reading.messages
    )


def consumed_rate(reading: Reading) -> float:
    """Messages a second, from the first receive to the last ack."""
    return reading.messages / reading.spans["consume"].wall_s


S3_LIMITS = (
    Limit(
        title="S3, layout leases, billable requests",
        target=3.0,
        unit="requests/msg",
        contender="s3-leases",
        measure=billable,
    ),
    Limit(
        title="S3, layout log, billable requests",
        target=0.1,
        unit="requests/msg",
        contender="s3-log",
        measure=billable,
    ),
    Limit(
        title="The same, 60 ms away, 100 consumers in four processes",
        target=0.1,
        unit="requests/msg",
        contender="s3-log-far-100-in-4",
        measure=billable,
    ),
)
S3_RATES = (
    Limit(
        title="S3, layout log, 60 ms away, 10 consumers",
        target=500.0,
        unit="msg/s",
        contender="s3-log-far-10",
        measure=lambda reading: reading.rate,
    ),
    Limit(
        title="The same, 100 consumers",
        target=500.0,
        unit="msg/s",
        contender="s3-log-far-100",
        measure=lambda reading: reading.rate,
    ),
)
"""What must be kept above, not below."""
