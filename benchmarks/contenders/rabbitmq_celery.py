"""Celery on RabbitMQ, as fast as its settings make it: no results, no events, acked late as the
others do, a hundred messages ahead for each of its two pool processes.
"""

from __future__ import annotations

import multiprocessing
import threading
import time
import warnings

import psutil
from celery import Celery
from celery.platforms import SecurityWarning
from celery.worker import state

from ..brokers.rig import PATIENCE_S, QUEUE, Tally, rabbitmq_broker, require_empty
from ..reading import Reading

_LOOK_S = 0.001
_handled = multiprocessing.Value("i", 0)
"""Counted in the processes of the pool, which inherit it."""


def _app(url: str) -> Celery:
    app = Celery("benchmark", broker=url.replace("%2F", "/"))
    app.conf.update(
        task_default_queue=QUEUE,
        task_ignore_result=True,
        task_acks_late=True,
        worker_prefetch_multiplier=100,
        worker_send_task_events=False,
        worker_enable_remote_control=False,
        worker_hijack_root_logger=False,
        worker_redirect_stdouts=False,
        broker_connection_retry_on_startup=True,
    )
    return app


def _consume(app: Celery, tally: Tally, count: int) -> None:
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
    deadline_s = time.monotonic() + PATIENCE_S
    while _handled.value < count:
        assert time.monotonic() < deadline_s, f"{_handled.value} of {count} were handled"
        if _handled.value:
            tally.reach(_handled.value)
        time.sleep(_LOOK_S)
    tally.reach(_handled.value)
    state.should_stop = 0
    thread.join()
    state.should_stop = None


def _cpu_s() -> float:
    """Of this process and those of its pool."""
    here = psutil.Process()
    return float(sum(sum(each.cpu_times()[:2]) for each in (here, *here.children())))


def run(count: int) -> Reading:
    warnings.simplefilter("ignore", SecurityWarning)  # of a worker that runs as root
    tally = Tally(count, _cpu_s)
    with rabbitmq_broker() as url:
        app = _app(url)

        @app.task(name="handle")
        def handle(number: int) -> None:
            with _handled.get_lock():
                _handled.value += 1

        for number in range(count):
            handle.delay(number)
        _consume(app, tally, count)
        app.close()
        require_empty(url)
    return tally.reading()
