"""aioboto3 by hand, four pollers: each receives ten, handles them, deletes them in one call."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import aioboto3

from pump import event_loop

from ..reading import Reading
from ..sqs_rig import REGION, Rig, sqs_rig

_POLLERS = 4


class _Pollers:
    """What one writes without a framework."""

    def __init__(self, client: Any, queue_url: str) -> None:
        self._client = client
        self._queue_url = queue_url
        self.is_stopped = False
        self.handled = 0

    async def poll(self) -> None:
        while not self.is_stopped:
            reply = await self._client.receive_message(
                QueueUrl=self._queue_url, MaxNumberOfMessages=10, WaitTimeSeconds=20
            )
            entries = []
            for at, message in enumerate(reply.get("Messages", ())):
                await self._handle(json.loads(message["Body"])["number"])
                entries.append({"Id": str(at), "ReceiptHandle": message["ReceiptHandle"]})
            if entries:
                await self._client.delete_message_batch(QueueUrl=self._queue_url, Entries=entries)

    async def _handle(self, number: int) -> None:
        self.handled += 1


async def _measure(rig: Rig, count: int) -> Reading:
    session = aioboto3.Session(region_name=REGION)
    async with session.client("sqs", endpoint_url=rig.endpoint) as client:
        pollers = _Pollers(client, rig.queue_url)
        async with asyncio.TaskGroup() as group:
            for _ in range(_POLLERS):
                group.create_task(pollers.poll())
            reading = await asyncio.to_thread(rig.measure, count)
            pollers.is_stopped = True
    assert pollers.handled == count
    return reading


def run(count: int, *, latency_ms: float = 0.0) -> Reading:
    with sqs_rig(latency_ms=latency_ms) as rig:
        rig.send(count)
        return event_loop.run(_measure(rig, count))
