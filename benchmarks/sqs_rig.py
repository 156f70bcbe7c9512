"""Rig: the SQS stand-in in a process of its own, and how a contender is measured on it.

The messages are sent first and held back; a contender starts and polls; then the clock starts,
the messages appear, and the clock stops when the last of them is deleted. So nobody's start-up
counts, and nobody's last delete is missing.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import attrs

from .reading import Reading, Stopwatch
from .sqs_latency.probe import probing

QUEUE = "ticks"
REGION = "us-east-1"
_ROOT = Path(__file__).resolve().parent.parent
_SEND_BATCH = 10
_PATIENCE_S = 300.0
_ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": "benchmark",
    "AWS_SECRET_ACCESS_KEY": "benchmark",
    "AWS_DEFAULT_REGION": REGION,
    "AWS_CONFIG_FILE": os.devnull,
    "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
    "NO_PROXY": "127.0.0.1",
    "no_proxy": "127.0.0.1",
}


class Rig:
    """The stand-in, with one empty queue whose messages are held back."""

    def __init__(self, endpoint: str, *, latency_ms: float = 0.0, is_probed: bool = False) -> None:
        self.endpoint = endpoint
        self._is_probed = is_probed
        self._latency_ms = latency_ms
        self._connection = HTTPConnection(urlsplit(endpoint).netloc, timeout=_PATIENCE_S)
        self.queue_url: str = self._operate("CreateQueue", QueueName=QUEUE)["QueueUrl"]
        self._ask("POST", "/hold")

    def send(self, count: int) -> None:
        """Send numbers, for the contenders without a wire format of their own."""
        for start in range(0, count, _SEND_BATCH):
            numbers = range(start, min(start + _SEND_BATCH, count))
            entries = [{"Id": str(each), "MessageBody": f'{{"number":{each}}}'} for each in numbers]
            self._operate("SendMessageBatch", QueueUrl=self.queue_url, Entries=entries)

    def measure(self, count: int) -> Reading:
        """Wait for the contender's first poll, let it consume all `count`, and end its polls.

        Blocks: the contender runs in another thread, or this is called from one.
        """
        self._ask("GET", "/polled")
        watch = Stopwatch()
        with probing(self.endpoint) if self._is_probed else nullcontext() as probe:
            with watch.span("consume"):
                self._ask("POST", f"/release?ms={self._latency_ms:g}")
                if probe is not None:
                    probe.go()
                drained = self._ask("GET", "/drained")
            figures = {} if probe is None else {"call_ms": probe.call_ms()}
        self._ask("POST", "/flush")
        return attrs.evolve(watch.reading(count), calls=drained["calls"], figures=figures)

    def close(self) -> None:
        """Hang up."""
        self._connection.close()

    def _operate(self, operation: str, **request: Any) -> Any:
        return self._ask("POST", "/", {"X-Amz-Target": f"AmazonSQS.{operation}"}, request)

    def _ask(self, method: str, path: str, headers: Any = None, body: Any = None) -> Any:
        content = None if body is None else json.dumps(body)
        self._connection.request(method, path, body=content, headers=headers or {})
        response = self._connection.getresponse()
        reply = json.loads(response.read())
        assert response.status == 200, reply
        return reply


@contextmanager
def sqs_rig(*, latency_ms: float = 0.0, is_probed: bool = False) -> Iterator[Rig]:
    """A fresh stand-in, set up for one measurement. Probed, the reading says what a call took a
    bare client meanwhile.
    """
    with sqs_server() as endpoint:
        rig = Rig(endpoint, latency_ms=latency_ms, is_probed=is_probed)
        try:
            yield rig
        finally:
            rig.close()


@contextmanager
def sqs_server() -> Iterator[str]:
    """The address of a fresh stand-in; meanwhile SDKs find credentials, and no one's settings."""
    with (
        aws_environment(),
        subprocess.Popen(
            [sys.executable, "-m", f"{__package__}.sqs_server"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | {"PYTHONPATH": str(_ROOT)},
            text=True,
        ) as server,
    ):
        assert server.stdin is not None
        assert server.stdout is not None
        try:
            yield server.stdout.readline().strip()
        finally:
            server.stdin.close()


@contextmanager
def aws_environment() -> Iterator[None]:
    """SDKs, of child processes too, find credentials, and no one's settings."""
    before = dict(os.environ)
    for name in [name for name in before if name.startswith("AWS_")]:
        del os.environ[name]
    os.environ.update(_ENVIRONMENT)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
