"""dramatiq's StubBroker and a worker with its default eight threads.

The actor is a blocking function, dramatiq's own kind: an async one would cost it more.
"""

from __future__ import annotations

import dramatiq
from dramatiq.brokers.stub import StubBroker

from ..reading import Reading, Stopwatch


def run(count: int) -> Reading:
    broker = StubBroker()
    broker.emit_after("process_boot")

    @dramatiq.actor(broker=broker)
    def handle(number: int) -> None:
        pass

    worker = dramatiq.Worker(broker)
    worker.start()
    watch = Stopwatch()
    with watch.span("send and handle"):
        for number in range(count):
            handle.send(number)
        broker.join(handle.queue_name)
        worker.join()
    worker.stop()
    broker.close()
    return watch.reading(count)
