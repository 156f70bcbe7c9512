"""A Celery application on SQS: `celery --app tests.sqs_clients.programs.child_celery worker`."""

from __future__ import annotations

import os
from typing import Any
from urllib.parse import urlsplit

from celery import Celery

_endpoint = urlsplit(os.environ["AWS_ENDPOINT_URL_SQS"])
_key, _secret = os.environ["AWS_ACCESS_KEY_ID"], os.environ["AWS_SECRET_ACCESS_KEY"]

app = Celery(
    "sums",
    broker=f"sqs://{_key}:{_secret}@{_endpoint.netloc}",
    backend=f"file://{os.environ['RESULTS']}",
)
app.conf.update(
    task_acks_late=True,
    broker_connection_retry_on_startup=True,
    broker_transport_options={
        "region": os.environ["AWS_DEFAULT_REGION"],
        "is_secure": False,
        "wait_time_seconds": 5,
    },
)


@app.task
def add(left: int, right: int) -> int:
    return left + right


@app.task(bind=True)
def stumble(self: Any) -> int:
    """Fail the first time; the second time comes through the queue, after a delay."""
    if self.request.retries == 0:
        raise self.retry(countdown=1, max_retries=1)
    return int(self.request.retries)
