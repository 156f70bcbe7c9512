"""dramatiq-sqs and a worker with dramatiq's default eight threads."""

from __future__ import annotations

import itertools

import dramatiq
from dramatiq_sqs import SQSBroker

from ..reading import Reading
from ..sqs_rig import QUEUE, REGION, sqs_rig


def run(count: int, *, latency_ms: float = 0.0) -> Reading:
    handled = itertools.count()
    with sqs_rig(latency_ms=latency_ms) as rig:
        broker = SQSBroker(region_name=REGION, endpoint_url=rig.endpoint)

        @dramatiq.actor(broker=broker, queue_name=QUEUE)
        def handle(number: int) -> None:
            next(handled)

        for number in range(count):
            handle.send(number)
        worker = dramatiq.Worker(broker)
        worker.start()
        reading = rig.measure(count)
        worker.stop()
        broker.close()
    assert next(handled) == count
    return reading
