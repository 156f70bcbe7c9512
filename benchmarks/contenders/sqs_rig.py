"""The SQS stand-in in a process of its own, and how a contender is measured on it.

The messages are sent first and held back; a contender starts and polls; then the clock starts,
the messages appear, and the clock stops when the last of them is deleted. So no start-up counts,
and no last delete is missing.

As a program it is the probe, which times the calls of a bare client meanwhile:

    python -m benchmarks.contenders.sqs_rig ENDPOINT
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from http.client import HTTPConnection
from statistics import median
from typing import Any
from urllib.parse import urlsplit

import attrs

from ..reading import ROOT, Reading, Stopwatch

QUEUE = "ticks"
REGION = "us-east-1"
_SEND_BATCH = 10
_PROBED_QUEUE = "probed"
_PROBE_PAUSE_S = 0.02
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
    """The address of a fresh stand-in; meanwhile SDKs find credentials, and no user's settings."""
    with (
        aws_environment(),
        subprocess.Popen(
            [sys.executable, "-m", "benchmarks.servers.sqs_stand_in"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
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
    """SDKs, of child processes too, find credentials, and no user's settings."""
    before = dict(os.environ)
    for name in [name for name in before if name.startswith("AWS_")]:
        del os.environ[name]
    os.environ.update(_ENVIRONMENT)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


# What a call takes a bare client while the contender is served, in a process of its own.


class Probe:
    """The probe, seen by the process that measures."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def go(self) -> None:
        """Begin to call."""
        assert self._process.stdin is not None
        self._process.stdin.write("go\n")
        self._process.stdin.flush()

    def call_ms(self) -> float:
        """End, and say what a call took."""
        said, _ = self._process.communicate(timeout=_PATIENCE_S)
        return float(said)


@contextmanager
def probing(endpoint: str) -> Iterator[Probe]:
    """A probe that has started, and waits to be told to go."""
    with subprocess.Popen(
        [sys.executable, "-m", __name__, endpoint],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            yield Probe(process)
        finally:
            process.kill()


class _BareClient:
    """Receives from a queue that has nothing, without waiting for anything to come."""

    def __init__(self, endpoint: str) -> None:
        self._connection = HTTPConnection(urlsplit(endpoint).netloc, timeout=_PATIENCE_S)
        url = self._call("CreateQueue", {"QueueName": _PROBED_QUEUE})["QueueUrl"]
        self._asked = {"QueueUrl": url, "WaitTimeSeconds": 0}

    def receive_ms(self) -> float:
        started_s = time.perf_counter()
        self._call("ReceiveMessage", self._asked)
        return (time.perf_counter() - started_s) * 1000

    def _call(self, operation: str, request: dict[str, object]) -> dict[str, str]:
        headers = {"X-Amz-Target": f"AmazonSQS.{operation}"}
        self._connection.request("POST", "/", body=json.dumps(request), headers=headers)
        reply: dict[str, str] = json.loads(self._connection.getresponse().read())
        return reply


def probe(endpoint: str) -> None:
    """Call from the first line on standard input to its end, and print the median (ms)."""
    client = _BareClient(endpoint)
    print("ready", flush=True)
    sys.stdin.readline()
    taken_ms = [client.receive_ms()]
    while not select.select([sys.stdin], [], [], _PROBE_PAUSE_S)[0]:
        taken_ms.append(client.receive_ms())
    print(median(taken_ms))


if __name__ == "__main__":
    probe(*sys.argv[1:])
