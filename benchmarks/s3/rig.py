"""Rig: the stand-in for S3 in a process of its own, and what a measurement asks of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from ..sqs_rig import aws_environment

BUCKET = "benchmark"
REGION = "us-east-1"
_ROOT = Path(__file__).resolve().parents[2]
_PATIENCE_S = 120.0


class Rig:
    """A fresh stand-in. Every bucket is there, and empty."""

    def __init__(self, endpoint: str) -> None:
        self.endpoint = endpoint

    def start(self, latency_ms: float) -> None:
        """From here on a request takes so much longer, and counts."""
        self._ask(f"measure?ms={latency_ms:g}")

    def counts(self) -> dict[str, int]:
        """Requests since the start, by what they are billed as."""
        found: dict[str, int] = self._ask("counts")
        return found

    def sizes(self) -> dict[str, int]:
        """What is in the bucket: the size of each object, by key."""
        found: dict[str, int] = self._ask(f"sizes?bucket={BUCKET}")
        return found

    def _ask(self, path: str) -> Any:
        connection = HTTPConnection(urlsplit(self.endpoint).netloc, timeout=_PATIENCE_S)
        try:
            connection.request("GET", f"/-/{path}")
            return json.loads(connection.getresponse().read())
        finally:
            connection.close()


@contextmanager
def s3_rig() -> Iterator[Rig]:
    """A stand-in of its own; meanwhile SDKs find credentials, and no one's settings."""
    with (
        aws_environment(),
        subprocess.Popen(
            [sys.executable, "-m", f"{__package__}.server"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | {"PYTHONPATH": str(_ROOT)},
            text=True,
        ) as server,
    ):
        assert server.stdin is not None
        assert server.stdout is not None
        try:
            yield Rig(server.stdout.readline().strip())
        finally:
            server.stdin.close()
