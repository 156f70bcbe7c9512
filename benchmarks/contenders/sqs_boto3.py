"""boto3 by hand, one thread: receive ten, handle them, delete them in one call."""

from __future__ import annotations

import json
import threading
from typing import Any

import boto3

from ..reading import Reading
from ..sqs_rig import REGION, Rig, sqs_rig


class _Loop:
    """What one writes without a framework."""

    def __init__(self, rig: Rig) -> None:
        self._client: Any = boto3.client("sqs", region_name=REGION, endpoint_url=rig.endpoint)
        self._queue_url = rig.queue_url
        self.is_stopped = False
        self.handled = 0

    def run(self) -> None:
        while not self.is_stopped:
            reply = self._client.receive_message(
                QueueUrl=self._queue_url, MaxNumberOfMessages=10, WaitTimeSeconds=20
            )
            entries = []
            for at, message in enumerate(reply.get("Messages", ())):
                self._handle(json.loads(message["Body"])["number"])
                entries.append({"Id": str(at), "ReceiptHandle": message["ReceiptHandle"]})
            if entries:
                self._client.delete_message_batch(QueueUrl=self._queue_url, Entries=entries)

    def _handle(self, number: int) -> None:
        self.handled += 1


def run(count: int, *, latency_ms: float = 0.0) -> Reading:
    with sqs_rig(latency_ms=latency_ms) as rig:
        rig.send(count)
        loop = _Loop(rig)
        thread = threading.Thread(target=loop.run)
        thread.start()
        reading = rig.measure(count)
        loop.is_stopped = True
        thread.join()
    assert loop.handled == count
    return reading
