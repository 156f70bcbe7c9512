"""`pump local` as a process of its own, to be killed and started again on the same port."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any, Self

import boto3
from botocore.config import Config


def free_port() -> int:
    """A port that nobody listens on; the server comes back on it after each kill."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class ServerProcess:
    """Starts the server, and waits until it says that it listens."""

    def __init__(
        self, data: Path, *arguments: str, port: int | None = None, folder: Path | None = None
    ) -> None:
        self.data = data
        self._folder = folder
        self.port = port or free_port()
        self._arguments = arguments
        self.process: subprocess.Popen[str] | None = None

    @property
    def endpoint_url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> Self:
        command = [sys.executable, "-m", "pump", "local", "--port", str(self.port)]
        self.process = subprocess.Popen(
            [*command, "--data", str(self.data), "--log-level", "warning", *self._arguments],
            stdout=subprocess.PIPE,
            text=True,
            cwd=self._folder,
        )
        assert self.process.stdout is not None
        first = self.process.stdout.readline()
        assert first == f"listening on {self.endpoint_url}\n", first
        return self

    def kill(self) -> None:
        """`kill -9`."""
        assert self.process is not None
        self.process.kill()
        self._wait()

    def terminate(self) -> int:
        """SIGTERM; its exit code."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return self._wait()

    def _wait(self) -> int:
        assert self.process is not None
        code = self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()
        self.process = None
        return code

    def client(self) -> Any:
        """A boto3 client that tries once: a send tried again after a kill is a second message."""
        return boto3.client(
            "sqs",
            endpoint_url=self.endpoint_url,
            region_name="us-east-1",
            aws_access_key_id="test",
            aws_secret_access_key="test",
            config=Config(
                retries={"total_max_attempts": 1, "mode": "standard"},
                connect_timeout=2,
                read_timeout=30,
            ),
        )

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *exc_info: object) -> None:
        if self.process is not None:
            self.kill()
