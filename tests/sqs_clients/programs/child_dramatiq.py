"""Dramatiq actors on SQS: `dramatiq tests.sqs_clients.programs.child_dramatiq`."""

from __future__ import annotations

import dramatiq
from dramatiq.middleware import CurrentMessage
from dramatiq_sqs import SQSBroker

# The endpoint, the region and the credentials come from the environment, through boto3.
broker = SQSBroker(namespace="dramatiq", dead_letter=True)
broker.add_middleware(CurrentMessage())
dramatiq.set_broker(broker)


@dramatiq.actor(queue_name="sums")
def add(left: int, right: int) -> None:
    # In one write, so that two at a time stay two lines.
    print(f"sum={left + right}\n", end="")


@dramatiq.actor(queue_name="sums", max_retries=1, min_backoff=1_000, max_backoff=1_000)
def stumble() -> None:
    """Fail the first time; the second time comes through the queue, after a delay."""
    message = CurrentMessage.get_current_message()
    assert message is not None
    retries = message.options.get("retries", 0)
    if retries == 0:
        raise ValueError("stumbled")
    print(f"stumbled={retries}")
