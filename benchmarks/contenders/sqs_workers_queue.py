"""sqs-workers: its own loop over batches of ten, one thread, JSON instead of its default pickle."""

from __future__ import annotations

import threading
from typing import Any

import boto3
from sqs_workers import SQSEnv

from ..reading import Reading
from ..sqs_rig import QUEUE, REGION, Rig, sqs_rig


class _UntilTold:
    """sqs-workers asks this after each batch whether to stop."""

    is_stopped = False

    def update_state(self, batch_processing_result: object) -> None:
        pass

    def need_shutdown(self) -> bool:
        return self.is_stopped


class _Session:
    """boto3 as sqs-workers wants it, but for our endpoint."""

    def __init__(self, rig: Rig) -> None:
        self._where = {"region_name": REGION, "endpoint_url": rig.endpoint}

    def client(self, service: str, config: Any) -> Any:
        return boto3.client(service, config=config, **self._where)

    def resource(self, service: str, config: Any) -> Any:
        return boto3.resource(service, config=config, **self._where)


def run(count: int, *, latency_ms: float = 0.0) -> Reading:
    handled = 0
    with sqs_rig(latency_ms=latency_ms) as rig:
        queue = SQSEnv(session=_Session(rig), codec="json").queue(QUEUE)

        @queue.processor("handle")
        def handle(number: int) -> None:
            nonlocal handled
            handled += 1

        with queue.add_batch():
            for number in range(count):
                handle.delay(number=number)
        until_told = _UntilTold()
        thread = threading.Thread(target=queue.process_queue, args=(until_told, 20))
        thread.start()
        reading = rig.measure(count)
        until_told.is_stopped = True
        thread.join()
    assert handled == count
    return reading
