"""repid's SQS server: batches of ten, and its default of a thousand tasks at once."""

from __future__ import annotations

import asyncio

from repid import Repid, Router
from repid.connections.sqs import SqsServer

from pump import event_loop

from ..reading import Reading
from ..sqs_rig import QUEUE, REGION, Rig, sqs_rig

_SENT_AT_ONCE = 100


async def _measure(rig: Rig, count: int) -> Reading:
    handled = 0
    app, router = Repid(), Router()
    server = SqsServer(endpoint_url=rig.endpoint, region_name=REGION)
    app.servers.register_server("sqs", server, is_default=True)

    @router.actor(channel=QUEUE)
    async def handle(number: int) -> None:
        nonlocal handled
        handled += 1

    async def send(number: int) -> None:
        await app.send_message_json(
            channel=QUEUE, payload={"number": number}, headers={"topic": "handle"}
        )

    app.include_router(router)
    async with server.connection():
        for start in range(0, count, _SENT_AT_ONCE):
            numbers = range(start, min(start + _SENT_AT_ONCE, count))
            await asyncio.gather(*(send(number) for number in numbers))
        working = asyncio.create_task(app.run_worker(messages_limit=count, register_signals=()))
        reading = await asyncio.to_thread(rig.measure, count)
        await working
    assert handled == count
    return reading


def run(count: int, *, latency_ms: float = 0.0) -> Reading:
    with sqs_rig(latency_ms=latency_ms) as rig:
        return event_loop.run(_measure(rig, count))
