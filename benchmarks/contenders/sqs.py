"""SQS: Pumphouse on each of its transports, and the loops that one writes without a framework."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import attrs

from pump.event_loop import run as run_loop

from ..catalogue import CONCURRENCY
from ..reading import Reading
from .sqs_rig import QUEUE, REGION, Rig, sqs_rig

_POLLERS = 4

# Pumphouse, as anyone would write it: a URL, a subscription, a handler.


def run_pump(count: int, *, transport: str, latency_ms: float = 0.0) -> Reading:
    """With all defaults."""
    from .pump import SUBSCRIPTION

    with sqs_rig(latency_ms=latency_ms) as rig:
        return run_loop(_measure_pump(rig, count, transport, SUBSCRIPTION))


def run_credits(
    count: int, *, transport: str, latency_ms: float = 0.0, prefetch: int | None = None
) -> Reading:
    """With a given number of messages in flight, and the time a call takes without the pump."""
    from gateways.sqs.calls import SQS
    from pump.subscription import Subscription

    from .pump import Tick

    subscription = Subscription(
        queue=QUEUE, request=Tick, concurrency=CONCURRENCY, prefetch=prefetch
    )
    most = SQS.receive_batch * SQS.max_pollers if prefetch is None else prefetch
    with sqs_rig(latency_ms=latency_ms, is_probed=True) as rig:
        reading = run_loop(_measure_pump(rig, count, transport, subscription))
    figures = {
        "credit_count": float(CONCURRENCY + most),
        "batch_count": float(SQS.receive_batch),
        "poller_count": float(SQS.max_pollers),
        "delete_call_count": float(SQS.max_settle_calls),
    }
    return attrs.evolve(reading, figures={**reading.figures, **figures})


async def _measure_pump(rig: Rig, count: int, transport: str, subscription: Any) -> Reading:
    """Post everything while it is held back, then pump until the last delete."""
    from pump.app import App
    from pump.stores.spill import MemorySpill

    from .pump import POST_BATCH, Tick

    handled = 0
    # A benchmark leaves no data folder behind.
    app = App(f"sqs://{REGION}?endpoint={rig.endpoint}&transport={transport}", spill=MemorySpill())

    async def handle(request: Tick) -> None:
        nonlocal handled
        handled += 1

    app.register(Tick, handle)
    app.subscribe(subscription)
    async with app:
        for start in range(0, count, POST_BATCH):
            numbers = range(start, min(start + POST_BATCH, count))
            await app.post_all([Tick(number) for number in numbers])
        async with app.pumping():
            reading = await asyncio.to_thread(rig.measure, count)
    assert handled == count
    return reading


# By hand: receive ten, handle them, delete them in one call.


def run_boto3(count: int, *, latency_ms: float = 0.0) -> Reading:
    """boto3, one thread."""
    import boto3

    is_stopped = False
    handled = 0

    def consume(client: Any, queue_url: str) -> None:
        while not is_stopped:
            reply = client.receive_message(
                QueueUrl=queue_url, MaxNumberOfMessages=10, WaitTimeSeconds=20
            )
            entries = []
            for at, message in enumerate(reply.get("Messages", ())):
                handle(json.loads(message["Body"])["number"])
                entries.append({"Id": str(at), "ReceiptHandle": message["ReceiptHandle"]})
            if entries:
                client.delete_message_batch(QueueUrl=queue_url, Entries=entries)

    def handle(number: int) -> None:
        nonlocal handled
        handled += 1

    with sqs_rig(latency_ms=latency_ms) as rig:
        rig.send(count)
        client = boto3.client("sqs", region_name=REGION, endpoint_url=rig.endpoint)
        thread = threading.Thread(target=consume, args=(client, rig.queue_url))
        thread.start()
        reading = rig.measure(count)
        is_stopped = True
        thread.join()
    assert handled == count
    return reading


def run_aioboto3(count: int, *, latency_ms: float = 0.0) -> Reading:
    """aioboto3, four pollers."""
    import aioboto3

    async def measure(rig: Rig) -> Reading:
        session = aioboto3.Session(region_name=REGION)
        async with session.client("sqs", endpoint_url=rig.endpoint) as client:
            pollers = _Pollers(client.receive_message, client.delete_message_batch, json.loads)
            return await pollers.consume(rig, count)

    with sqs_rig(latency_ms=latency_ms) as rig:
        rig.send(count)
        return run_loop(measure(rig))


def run_lean(count: int, *, latency_ms: float = 0.0) -> Reading:
    """The same four pollers on the lean transport, without an SDK's overhead."""
    import msgspec

    from gateways._aws.sdk import transport_for
    from gateways._aws.settings import AwsSettings, TransportKind

    decode = msgspec.json.Decoder(dict[str, int]).decode

    async def measure(rig: Rig) -> Reading:
        settings = AwsSettings(
            region=REGION, endpoint_url=rig.endpoint, transport=TransportKind.LEAN
        )
        transport = transport_for(settings)
        call = transport.call
        await transport.open()
        try:
            pollers = _Pollers(
                lambda **request: call("sqs", "receive_message", request),
                lambda **request: call("sqs", "delete_message_batch", request),
                decode,
            )
            return await pollers.consume(rig, count)
        finally:
            await transport.aclose()

    with sqs_rig(latency_ms=latency_ms) as rig:
        rig.send(count)
        return run_loop(measure(rig))


@attrs.define
class _Pollers:
    """The loop by hand, on the calls of a client."""

    _receive: Callable[..., Awaitable[Any]]
    _delete: Callable[..., Awaitable[Any]]
    _decode: Callable[[str], Any]
    _is_stopped: bool = False
    _handled: int = 0

    async def consume(self, rig: Rig, count: int) -> Reading:
        """Measure from the first message to the last delete."""
        async with asyncio.TaskGroup() as group:
            for _ in range(_POLLERS):
                group.create_task(self._poll(rig.queue_url))
            reading = await asyncio.to_thread(rig.measure, count)
            self._is_stopped = True
        assert self._handled == count
        return reading

    async def _poll(self, queue_url: str) -> None:
        while not self._is_stopped:
            reply = await self._receive(
                QueueUrl=queue_url, MaxNumberOfMessages=10, WaitTimeSeconds=20
            )
            entries = []
            for at, message in enumerate(reply.get("Messages", ())):
                await self._handle(self._decode(message["Body"])["number"])
                entries.append({"Id": str(at), "ReceiptHandle": message["ReceiptHandle"]})
            if entries:
                await self._delete(QueueUrl=queue_url, Entries=entries)

    async def _handle(self, number: int) -> None:
        self._handled += 1
