"""A taskiq broker on SQS: `taskiq worker tests.sqs_clients.programs.child_taskiq:broker`."""

from __future__ import annotations

import os

from taskiq_aio_sqs import SQSBroker

broker = SQSBroker(
    "taskiq-sums",
    endpoint_url=os.environ["AWS_ENDPOINT_URL_SQS"],
    region_name=os.environ["AWS_DEFAULT_REGION"],
    max_number_of_messages=10,
    wait_time_seconds=5,
)


@broker.task
async def add(left: int, right: int) -> None:
    # In one write, so that two at a time stay two lines.
    print(f"sum={left + right}\n", end="")
