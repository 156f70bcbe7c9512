"""Other frameworks on SQS, each with its defaults; Celery as fast as its settings make it."""

from __future__ import annotations

import asyncio
import itertools
import resource
import threading
from contextlib import suppress
from importlib import import_module
from typing import Any

import attrs

from pump.event_loop import run as run_loop

from ..reading import Reading
from .libraries import celery_app, running_worker
from .sqs_rig import QUEUE, REGION, Rig, sqs_rig

_SENT_AT_ONCE = 100


def run_sqs_workers(count: int, *, latency_ms: float = 0.0) -> Reading:
    """Its own loop over batches of ten, one thread, JSON instead of its default pickle."""
    import boto3
    from sqs_workers import SQSEnv

    class Session:
        """boto3 as sqs-workers wants it, but for our endpoint."""

        def client(self, service: str, config: Any) -> Any:
            return boto3.client(service, config=config, **where)

        def resource(self, service: str, config: Any) -> Any:
            return boto3.resource(service, config=config, **where)

    handled = 0
    with sqs_rig(latency_ms=latency_ms) as rig:
        where = {"region_name": REGION, "endpoint_url": rig.endpoint}
        queue = SQSEnv(session=Session(), codec="json").queue(QUEUE)

        @queue.processor("handle")
        def handle(number: int) -> None:
            nonlocal handled
            handled += 1

        with queue.add_batch():
            for number in range(count):
                handle.delay(number=number)
        shutdown = _SqsWorkersShutdown()
        thread = threading.Thread(target=queue.process_queue, args=(shutdown, 20))
        thread.start()
        reading = rig.measure(count)
        shutdown.is_wanted = True
        thread.join()
    assert handled == count
    return reading


class _SqsWorkersShutdown:
    """sqs-workers asks this after each batch whether to stop."""

    is_wanted = False

    def update_state(self, batch_processing_result: object) -> None:
        pass

    def need_shutdown(self) -> bool:
        return self.is_wanted


def run_taskiq(count: int, *, latency_ms: float = 0.0) -> Reading:
    """taskiq-aio-sqs: batches of ten, and the hundred tasks at once that are taskiq's default."""
    with sqs_rig(latency_ms=latency_ms) as rig:
        return run_loop(_measure_taskiq(rig, count))


async def _measure_taskiq(rig: Rig, count: int) -> Reading:
    from taskiq.api import run_receiver_task
    from taskiq_aio_sqs import SQSBroker

    handled = 0
    broker = SQSBroker(
        QUEUE,
        endpoint_url=rig.endpoint,
        region_name=REGION,
        max_number_of_messages=10,
        wait_time_seconds=20,
    )

    @broker.task
    async def handle(number: int) -> None:
        nonlocal handled
        handled += 1

    await broker.startup()
    for start in range(0, count, _SENT_AT_ONCE):
        numbers = range(start, min(start + _SENT_AT_ONCE, count))
        await asyncio.gather(*(handle.kiq(number) for number in numbers))
    receiving = asyncio.create_task(run_receiver_task(broker))
    reading = await asyncio.to_thread(rig.measure, count)
    receiving.cancel()
    with suppress(asyncio.CancelledError):
        await receiving
    await broker.shutdown()
    assert handled == count
    return reading


def run_repid(count: int, *, latency_ms: float = 0.0) -> Reading:
    """repid's SQS server: batches of ten, and its default of a thousand tasks at once."""
    with sqs_rig(latency_ms=latency_ms) as rig:
        return run_loop(_measure_repid(rig, count))


async def _measure_repid(rig: Rig, count: int) -> Reading:
    from repid import Repid, Router
    from repid.connections.sqs import SqsServer

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


def run_dramatiq(count: int, *, latency_ms: float = 0.0) -> Reading:
    """dramatiq-sqs and a worker with dramatiq's default eight threads."""
    import dramatiq
    from dramatiq_sqs import SQSBroker

    handled = itertools.count()
    with sqs_rig(latency_ms=latency_ms) as rig:
        broker = SQSBroker(region_name=REGION, endpoint_url=rig.endpoint)

        @dramatiq.actor(broker=broker, queue_name=QUEUE)
        def handle(number: int) -> None:
            next(handled)

        for number in range(count):
            handle.send(number)
        worker = dramatiq.Worker(broker)
        worker.start()
        reading = rig.measure(count)
        worker.stop()
        broker.close()
    assert next(handled) == count
    return reading


def run_celery(count: int, *, latency_ms: float = 0.0) -> Reading:
    """No pause between polls, and as many messages ahead as it likes.

    Its default pool, of two processes, is also its fastest here: without one, its event loop
    sleeps whenever no socket is open. Their processor time counts too, starting and ending
    included.
    """
    # kombu asks for it only once it polls, in a thread.
    import_module("pycurl")
    with sqs_rig(latency_ms=latency_ms) as rig:
        options = {
            "region": REGION,
            "is_secure": False,
            "polling_interval": 0,
            "wait_time_seconds": 20,
            "predefined_queues": {QUEUE: {"url": rig.queue_url}},
        }
        app = celery_app(
            rig.endpoint.replace("http://", "sqs://benchmark:benchmark@"),
            QUEUE,
            worker_prefetch_multiplier=0,
            broker_transport_options=options,
        )

        @app.task(name="handle")
        def handle(number: int) -> None:
            pass

        for number in range(count):
            handle.delay(number)
        cpu_s = _children_cpu_s()
        with running_worker(app):
            reading = rig.measure(count)
        cpu_s = _children_cpu_s() - cpu_s
    [(name, span)] = reading.spans.items()
    return attrs.evolve(reading, spans={name: attrs.evolve(span, cpu_s=span.cpu_s + cpu_s)})


def _children_cpu_s() -> float:
    """Of the processes that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime
