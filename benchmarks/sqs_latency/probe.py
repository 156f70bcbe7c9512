"""Probe: what a call takes a bare client while somebody else is served, in a process of its own.

python -m benchmarks.sqs_latency.probe ENDPOINT

It calls now and then, from the first line on standard input to its end, and prints the median (ms).
"""

from __future__ import annotations

import json
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from statistics import median
from urllib.parse import urlsplit

_PAUSE_S = 0.02
_PATIENCE_S = 60.0
_QUEUE = "probed"


class Probe:
    """The probe from outside."""

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


class _Caller:
    """Receives from a queue that has nothing, without waiting for anything to come."""

    def __init__(self, endpoint: str) -> None:
        self._connection = HTTPConnection(urlsplit(endpoint).netloc, timeout=_PATIENCE_S)
        url = self._call("CreateQueue", {"QueueName": _QUEUE})["QueueUrl"]
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


def main(endpoint: str) -> None:
    """Call until standard input ends."""
    caller = _Caller(endpoint)
    print("ready", flush=True)
    sys.stdin.readline()
    taken_ms = [caller.receive_ms()]
    while not select.select([sys.stdin], [], [], _PAUSE_S)[0]:
        taken_ms.append(caller.receive_ms())
    print(median(taken_ms))


if __name__ == "__main__":
    main(*sys.argv[1:])
