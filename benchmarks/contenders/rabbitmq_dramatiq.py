"""dramatiq on RabbitMQ, with a worker of its default eight threads."""

from __future__ import annotations

import dramatiq
from dramatiq.brokers.rabbitmq import RabbitmqBroker

from ..brokers.rig import QUEUE, Tally, rabbitmq_broker, require_empty
from ..reading import Reading


def run(count: int) -> Reading:
    tally = Tally(count)
    with rabbitmq_broker() as url:
        broker = RabbitmqBroker(url=url, confirm_delivery=True)

        @dramatiq.actor(broker=broker, queue_name=QUEUE)
        def handle(number: int) -> None:
            tally.add()

        for number in range(count):
            handle.send(number)
        worker = dramatiq.Worker(broker)
        worker.start()
        tally.wait()
        worker.stop()
        broker.close()
        require_empty(url)
    return tally.reading()
