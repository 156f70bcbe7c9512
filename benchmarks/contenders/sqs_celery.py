"""Celery on SQS, as fast as its settings make it: no results, no events, no pause between
polls, and as many messages ahead as it likes.

Its default pool, of two processes, is also its fastest here: without one, its event loop sleeps
whenever no socket is open. Their processor time counts too, starting and ending included.
"""

from __future__ import annotations

import resource
import threading
import warnings
from importlib import import_module

import attrs
from celery import Celery
from celery.platforms import SecurityWarning
from celery.worker import state

from ..reading import Reading, Span
from ..sqs_rig import QUEUE, REGION, Rig, sqs_rig

# kombu asks for it only once it polls, in a thread.
import_module("pycurl")


def _app(rig: Rig) -> Celery:
    app = Celery("benchmark", broker=rig.endpoint.replace("http://", "sqs://benchmark:benchmark@"))
    app.conf.update(
        task_default_queue=QUEUE,
        task_ignore_result=True,
        worker_prefetch_multiplier=0,
        worker_send_task_events=False,
        worker_enable_remote_control=False,
        worker_hijack_root_logger=False,
        worker_redirect_stdouts=False,
        broker_transport_options={
            "region": REGION,
            "is_secure": False,
            "polling_interval": 0,
            "wait_time_seconds": 20,
            "predefined_queues": {QUEUE: {"url": rig.queue_url}},
        },
    )
    return app


def _work(app: Celery, rig: Rig, count: int) -> Reading:
    worker = app.Worker(
        pool="prefork",
        concurrency=2,
        loglevel="ERROR",
        quiet=True,
        without_gossip=True,
        without_mingle=True,
        without_heartbeat=True,
    )
    thread = threading.Thread(target=worker.start)
    thread.start()
    reading = rig.measure(count)
    state.should_stop = 0
    thread.join()
    state.should_stop = None
    return reading


def _children_cpu_s() -> float:
    """Of the processes that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def run(count: int, *, latency_ms: float = 0.0) -> Reading:
    warnings.simplefilter("ignore", SecurityWarning)  # of a worker that runs as root
    with sqs_rig(latency_ms=latency_ms) as rig:
        app = _app(rig)

        @app.task(name="handle")
        def handle(number: int) -> None:
            pass

        for number in range(count):
            handle.delay(number)
        cpu_s = _children_cpu_s()
        reading = _work(app, rig, count)
        cpu_s = _children_cpu_s() - cpu_s
    return attrs.evolve(
        reading,
        spans={name: _with_cpu(span, cpu_s) for name, span in reading.spans.items()},
    )


def _with_cpu(span: Span, cpu_s: float) -> Span:
    return attrs.evolve(span, cpu_s=span.cpu_s + cpu_s)
