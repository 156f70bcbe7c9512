"""Pricing: dollars for requests, where a provider bills them. Pure.

| gateway | billed                                                                         |
|---------|--------------------------------------------------------------------------------|
| sqs     | every request, and once more for each further 64 KB of its messages            |
| s3      | PUT and LIST, GET at a twelfth of that; DELETE is free                         |
| others  | nothing by the request: machines, disks or plans cost, and are not seen here   |
"""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil

import attrs

_SQS_BATCH = 10
_SQS_CHUNK_BYTES = 64 * 1024


@attrs.frozen(kw_only=True)
class RequestPrices:
    """Dollars."""

    puts_1000: float = 0.005
    lists_1000: float = 0.005
    gets_1000: float = 0.0004
    sqs_million: float = 0.40
    sqs_fifo_million: float = 0.50
    source: str = "list prices of us-east-1, S3 Standard and SQS, 2025"

    @classmethod
    def given(cls, **prices: float | None) -> RequestPrices:
        """These, and list prices for those that are None; one for SQS is for FIFO queues too."""
        prices["sqs_fifo_million"] = prices.get("sqs_million")
        known = {name: price for name, price in prices.items() if price is not None}
        if not known:
            return cls()
        return attrs.evolve(cls(**known), source="prices as given, else list prices")  # type: ignore[arg-type]


@attrs.frozen(kw_only=True)
class Cost:
    """What a million messages like the measured ones cost in requests; an estimate."""

    dollars_a_million: float
    is_counted: bool
    """Whether the gateway counted its requests; else they are derived from the pump's calls."""
    source: str
    """Whose prices."""


@attrs.frozen(kw_only=True)
class Traffic:
    """What went through a gateway."""

    messages: int
    body_bytes: int
    calls: Calls
    requests: Mapping[str, float] | None
    is_fifo: bool = False
    """Whether the queue is one of the dearer kind that SQS has."""


def is_billed(gateway: str) -> bool:
    """Whether the provider behind the gateway of this scheme bills requests."""
    return gateway in ("sqs", "s3")


def cost_of(gateway: str, traffic: Traffic, prices: RequestPrices) -> Cost | None:
    """The cost on the gateway of this scheme; None when it has none, or it cannot be known."""
    if not traffic.messages:
        return None
    dollars = None
    if gateway == "sqs":
        million = prices.sqs_fifo_million if traffic.is_fifo else prices.sqs_million
        dollars = _sqs_requests(traffic) * million / 1e6
    elif gateway == "s3" and traffic.requests is not None:
        dollars = _s3_dollars(traffic.requests, prices)
    if dollars is None:
        return None
    return Cost(
        dollars_a_million=dollars / traffic.messages * 1e6,
        is_counted=traffic.requests is not None,
        source=prices.source,
    )


def _sqs_requests(traffic: Traffic) -> float:
    if traffic.requests is not None:
        requests = float(sum(traffic.requests.values()))
    else:
        sends, calls = ceil(traffic.messages / _SQS_BATCH), traffic.calls
        requests = float(sends + calls.receives + calls.settles + calls.extends)
    return requests + _further_chunks(traffic)


def _further_chunks(traffic: Traffic) -> float:
    """What is billed beside the request itself, for what is sent and what is received."""
    together = min(_SQS_BATCH, max(1, traffic.messages))
    chunks = ceil(together * traffic.body_bytes / _SQS_CHUNK_BYTES)
    return 2 * max(0, chunks - 1) * traffic.messages / together


def _s3_dollars(requests: Mapping[str, float], prices: RequestPrices) -> float:
    thousand = {
        "put": prices.puts_1000,
        "list": prices.lists_1000,
        "get": prices.gets_1000,
        "remove": 0.0,
    }
    # A kind that is not known here is taken for the dearest.
    return sum(
        count * thousand.get(kind, prices.puts_1000) / 1000 for kind, count in requests.items()
    )


# Calls: what a pump asked of its gateway while it was measured.


@attrs.frozen(kw_only=True)
class Calls:
    """Calls of a gateway's ports. One may be several requests to the provider, or none."""

    sends: int = 0
    receives: int = 0
    empty_receives: int = 0
    settles: int = 0
    extends: int = 0
    received: int = 0
    """Messages that receives brought."""
    settled: int = 0
    """Messages that settle calls were about."""

    @property
    def mean_received(self) -> float | None:
        """Messages a receive that brought any."""
        full = self.receives - self.empty_receives
        return self.received / full if full else None
