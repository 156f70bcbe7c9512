"""One RabbitMQ for a whole test run, started by whoever needs it first; or one of a test's own.

A server owns a folder; whoever made the folder holds its `owner.lock`. The server's process group
watches that lock and ends when it is free, so nothing survives a run, killed or not. By hand:

    .venv/bin/python -m tests.brokers.rabbitmq_server
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

import attrs

from . import launch_rabbitmq

DEBIAN = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
START_TIMEOUT_S = 100.0
STOP_TIMEOUT_S = 30.0
HELLO = b"AMQP\x00\x00\x09\x01"


class RabbitMQFailed(Exception):
    """RabbitMQ did not start; the message says why."""


def installed_server() -> str | None:
    """The server's program, None when it is not installed. Debian's other one changes user."""
    return str(DEBIAN) if DEBIAN.exists() else shutil.which("rabbitmq-server")


@attrs.frozen
class RabbitMQ:
    """A server on its folder. It can be killed, and started again on the same data and port."""

    folder: Path

    @property
    def port(self) -> int:
        ports: dict[str, int] = json.loads((self.folder / "ports").read_text())
        return ports["amqp"]

    def url(self, vhost: str = "/", *, port: int | None = None) -> str:
        """Where it is to be reached, or by which other port it is."""
        path = vhost.replace("/", "%2F")
        return f"amqp://guest:guest@127.0.0.1:{port or self.port}/{path}"

    def start(self) -> None:
        """Return when it takes connections; safe to call from many processes at once."""
        with _locked(self.folder / "start.lock"):
            if _is_free(self.folder / "server.lock"):
                self._launch()

    def be_short_of_memory(self) -> None:
        """Raise the memory alarm: from now on it reads nothing from connections that publish."""
        self._control("set_vm_memory_high_watermark", "0.0000001")

    @contextmanager
    def standing_still(self) -> Iterator[None]:
        """Meanwhile it answers nothing, and says nothing of it."""
        group = int((self.folder / "group").read_text())
        os.killpg(group, signal.SIGSTOP)
        try:
            yield
        finally:
            os.killpg(group, signal.SIGCONT)

    def _control(self, *words: str) -> None:
        ports = json.loads((self.folder / "ports").read_text())
        program = Path(installed_server() or "").with_name("rabbitmqctl")
        subprocess.run(
            [program, *words],
            env=launch_rabbitmq.environment(self.folder, ports),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            check=True,
            timeout=START_TIMEOUT_S,
        )

    def kill(self) -> None:
        """As a power cut does it: nothing is told, nothing is flushed."""
        group = int((self.folder / "group").read_text())
        os.killpg(group, signal.SIGKILL)
        _wait_until_free(self.folder / "server.lock")

    def _launch(self) -> None:
        program = installed_server()
        if program is None:
            raise RabbitMQFailed("RabbitMQ is not installed: `make test-brokers` does, as root")
        log = self.folder / "server.log"
        with log.open("wb") as output:
            subprocess.run(
                [sys.executable, launch_rabbitmq.__file__, self.folder, program],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                check=True,
            )
        try:
            self._wait_until_ready()
        except RabbitMQFailed as error:
            raise RabbitMQFailed(f"{error}\n{log.read_text()}") from None

    def _wait_until_ready(self) -> None:
        waiter = threading.Event()
        for _ in range(int(START_TIMEOUT_S / 0.1)):
            if _says_hello(self.port):
                return
            if _is_free(self.folder / "server.lock"):
                raise RabbitMQFailed("RabbitMQ ended before it was ready")
            waiter.wait(0.1)
        raise RabbitMQFailed(f"RabbitMQ was not ready after {START_TIMEOUT_S:g} s")


@contextmanager
def owned_server_folder() -> Iterator[Path]:
    """A folder for one server; at the end the server is gone and so is the folder."""
    folder = Path(tempfile.mkdtemp(prefix="pumphouse-rabbitmq-"))
    (folder / "server.lock").touch()
    owner = _locked(folder / "owner.lock")
    try:
        yield folder
    finally:
        # Opened first: the server removes the folder before it ends.
        with (folder / "server.lock").open("ab") as server:
            owner.close()
            _wait_for(server)
        shutil.rmtree(folder, ignore_errors=True)


def _says_hello(port: int) -> bool:
    """Whether an AMQP server answers: its first frame is a method of channel 0."""
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=5) as client:
        client.sendall(HELLO)
        return client.recv(1) == b"\x01"
    return False


def _locked(path: Path) -> IO[bytes]:
    """The file, locked until it is closed."""
    file = path.open("ab")
    fcntl.flock(file, fcntl.LOCK_EX)
    return file


def _is_free(path: Path) -> bool:
    with path.open("ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


def _wait_until_free(path: Path) -> None:
    with path.open("ab") as file:
        _wait_for(file)


def _wait_for(file: IO[bytes]) -> None:
    waiter = threading.Event()
    for _ in range(int(STOP_TIMEOUT_S / 0.01)):
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            waiter.wait(0.01)
        else:
            return
    raise RabbitMQFailed(f"RabbitMQ did not end within {STOP_TIMEOUT_S:g} s")


def main() -> None:
    """Serve until Ctrl-C or SIGTERM."""
    ends = {signal.SIGINT, signal.SIGTERM}
    with owned_server_folder() as folder:
        server = RabbitMQ(folder)
        server.start()
        print(server.url(), flush=True)
        signal.pthread_sigmask(signal.SIG_BLOCK, ends)
        signal.sigwait(ends)


if __name__ == "__main__":
    main()
