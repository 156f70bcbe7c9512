"""Pumphouse on SQS with a hand of a given size, and the time a call takes without it."""

from __future__ import annotations

import attrs

from gateways.sqs.calls import SQS
from pump import Subscription, event_loop

from ..reading import Reading
from ..sqs_latency.catalogue import CONCURRENCY
from ..sqs_rig import QUEUE, sqs_rig
from .pump_app import Tick
from .pump_sqs import measure


def run(
    count: int, *, transport: str, latency_ms: float = 0.0, prefetch: int | None = None
) -> Reading:
    subscription = Subscription(
        queue=QUEUE, request=Tick, concurrency=CONCURRENCY, prefetch=prefetch
    )
    most = SQS.receive_batch * SQS.max_pollers if prefetch is None else prefetch
    with sqs_rig(latency_ms=latency_ms, is_probed=True) as rig:
        reading = event_loop.run(measure(rig, count, transport, subscription))
        return attrs.evolve(
            reading,
            figures={
                **reading.figures,
                "credit_count": float(CONCURRENCY + most),
                "batch_count": float(SQS.receive_batch),
                "poller_count": float(SQS.max_pollers),
                "delete_call_count": float(SQS.max_settle_calls),
            },
        )
