"""Catalogue of pumps on SQS at growing distances, with a hand of a known size."""

from __future__ import annotations

import attrs

from ..contender import Contender, Group

CREDITS = 90
"""In hand or asked for: ten that run, and eighty more, the most that a pump takes by itself."""
_MORE_CREDITS = 320
"""More than eight pollers can keep on the way."""
CONCURRENCY = 10
_ROUNDS = 2
"""Most of the time is waiting, which differs little from round to round."""
TRANSPORTS = ("lean", "aioboto3")
FAR_MS = (10, 50, 200)
_NEAR_MS = 0
# Share of the messages. Far away each credit makes some ninety round trips or more, so that the
# first pollers' start and the last deletes are a few per cent.
_SHARES = {0: 0.24, 10: 0.16, 50: 0.1, 200: 0.08}


def name_of(transport: str, latency_ms: int) -> str:
    """The contender with `CREDITS` over this transport, so far away."""
    return f"sqs-credits-{transport}-{latency_ms}"


def _contender(transport: str, latency_ms: int) -> Contender:
    return Contender(
        name=name_of(transport, latency_ms),
        title=f"{transport}, {CREDITS} in hand",
        group=Group.SQS_LATENCY,
        module="sqs_credits",
        share=_SHARES[latency_ms],
        needs="pumphouse[sqs]",
        max_rounds=_ROUNDS,
        options={
            "transport": transport,
            "latency_ms": latency_ms,
            "prefetch": CREDITS - CONCURRENCY,
        },
    )


def _by_itself(latency_ms: int) -> Contender:
    """A hand of the size the pump finds by itself; at most `CREDITS`, and as many are counted."""
    like = _contender("lean", latency_ms)
    options = {name: value for name, value in like.options.items() if name != "prefetch"}
    return attrs.evolve(
        like,
        name=f"sqs-credits-default-{latency_ms}",
        title="lean, a hand by default",
        options=options,
        note=f"grows to {CREDITS}",
    )


def _too_many(latency_ms: int) -> Contender:
    """More credits than pollers can use."""
    like = _contender("lean", latency_ms)
    return attrs.evolve(
        like,
        name=f"sqs-credits-many-{latency_ms}",
        title=f"lean, {_MORE_CREDITS} in hand",
        options={**like.options, "prefetch": _MORE_CREDITS - CONCURRENCY},
    )


LATENCY_CONTENDERS = (
    *(_contender(each, latency) for latency in (_NEAR_MS, *FAR_MS) for each in TRANSPORTS),
    *(_by_itself(latency) for latency in FAR_MS),
    _too_many(200),
)


def near_of(contender: Contender) -> str:
    """The same pump with nothing between it and SQS: what its processor time allows."""
    return name_of(str(contender.options["transport"]), _NEAR_MS)
