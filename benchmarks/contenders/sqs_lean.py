"""The lean transport by hand: the loop of `sqs_aioboto3` without an SDK's overhead."""

from __future__ import annotations

import asyncio

import msgspec

from gateways._aws.settings import AwsSettings, TransportKind
from gateways._aws.transport import Transport, transport_for
from pump import event_loop

from ..reading import Reading
from ..sqs_rig import REGION, Rig, sqs_rig

_POLLERS = 4
_decode = msgspec.json.Decoder(dict[str, int]).decode


class _Pollers:
    """What one writes without a framework."""

    def __init__(self, transport: Transport, queue_url: str) -> None:
        self._transport = transport
        self._queue_url = queue_url
        self.is_stopped = False
        self.handled = 0

    async def poll(self) -> None:
        asked = {"QueueUrl": self._queue_url, "MaxNumberOfMessages": 10, "WaitTimeSeconds": 20}
        while not self.is_stopped:
            reply = await self._transport.call("sqs", "receive_message", asked)
            entries = []
            for at, message in enumerate(reply.get("Messages", ())):
                await self._handle(_decode(message["Body"])["number"])
                entries.append({"Id": str(at), "ReceiptHandle": message["ReceiptHandle"]})
            if entries:
                done = {"QueueUrl": self._queue_url, "Entries": entries}
                await self._transport.call("sqs", "delete_message_batch", done)

    async def _handle(self, number: int) -> None:
        self.handled += 1


async def _measure(rig: Rig, count: int) -> Reading:
    settings = AwsSettings(region=REGION, endpoint_url=rig.endpoint, transport=TransportKind.LEAN)
    transport = transport_for(settings)
    await transport.open()
    try:
        pollers = _Pollers(transport, rig.queue_url)
        async with asyncio.TaskGroup() as group:
            for _ in range(_POLLERS):
                group.create_task(pollers.poll())
            reading = await asyncio.to_thread(rig.measure, count)
            pollers.is_stopped = True
    finally:
        await transport.aclose()
    assert pollers.handled == count
    return reading


def run(count: int, *, latency_ms: float = 0.0) -> Reading:
    with sqs_rig(latency_ms=latency_ms) as rig:
        rig.send(count)
        return event_loop.run(_measure(rig, count))
