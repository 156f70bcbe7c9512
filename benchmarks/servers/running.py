"""The SQS servers that are compared, each in processes of its own, and what those cost."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import IO

import attrs
import psutil

from tests.brokers import localstack as brokers

from ..reading import ROOT

_MOTO_PYTHON = ROOT / ".venv-moto" / "bin" / "python"
_MOTO = Path(__file__).with_name("launch_moto.py")
_STOP_TIMEOUT_S = 60.0


class NotInstalled(ImportError):
    """The server's own environment is missing; `make bench` makes it."""


@attrs.frozen
class Server:
    """A server that listens."""

    endpoint: str
    process: psutil.Process

    def cpu_s(self) -> float:
        """Processor time so far, of all its processes and of those they have waited for."""
        return sum(sum(each.cpu_times()[:4]) for each in self._tree())

    def rss_mib(self) -> float:
        """Resident memory of all its processes."""
        return float(sum(each.memory_info().rss for each in self._tree()) / 2**20)

    def _tree(self) -> list[psutil.Process]:
        return [self.process, *self.process.children(recursive=True)]


@contextmanager
def pump_local(data: Path) -> Iterator[Server]:
    """`pump local` with a data folder: every acknowledged send is on the disk."""
    command = [sys.executable, "-m", "pump", "local", "--port", "0", "--data", str(data)]
    with _started(command) as (process, output):
        yield Server(_address_in(output), psutil.Process(process.pid))


@contextmanager
def localstack(_: Path) -> Iterator[Server]:
    """LocalStack, as the broker tests run it. It keeps its messages in memory."""
    if not brokers.PYTHON.exists():
        raise NotInstalled(f"{brokers.PYTHON.relative_to(ROOT)} is missing: run `make bench`")
    with brokers.owned_folder() as folder:
        endpoint = brokers.server_in(folder).url
        # Its launcher detaches it; the folder is in its command line, and only in its.
        [process] = [
            each
            for each in psutil.process_iter(["cmdline"])
            if str(folder) in (each.info["cmdline"] or ())
        ]
        yield Server(endpoint, process)


@contextmanager
def moto(_: Path) -> Iterator[Server]:
    """moto's threaded server. It keeps its messages in memory."""
    if not _MOTO_PYTHON.exists():
        raise NotInstalled(f"{_MOTO_PYTHON.relative_to(ROOT)} is missing: run `make bench`")
    with _started([str(_MOTO_PYTHON), "-P", str(_MOTO)]) as (process, output):
        yield Server(_address_in(output), psutil.Process(process.pid))


@contextmanager
def bare(data: Path) -> Iterator[Server]:
    """A server that does next to nothing but write to the disk (`bare_server`)."""
    data.mkdir(exist_ok=True)
    command = [sys.executable, "-m", "benchmarks.servers.bare_server", str(data / "sent")]
    with _started(command) as (process, output):
        yield Server(_address_in(output), psutil.Process(process.pid))


SERVERS: dict[str, Callable[[Path], AbstractContextManager[Server]]] = {
    "pump-local": pump_local,
    "localstack": localstack,
    "moto": moto,
    "bare": bare,
}


@contextmanager
def _started(command: list[str]) -> Iterator[tuple[subprocess.Popen[str], IO[str]]]:
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        try:
            yield process, process.stdout
        finally:
            process.terminate()
            process.wait(_STOP_TIMEOUT_S)


def _address_in(output: IO[str]) -> str:
    for line in output:
        if (at := line.find("http://")) >= 0:
            return line[at:].split()[0]
    raise RuntimeError("the server ended before it said where it listens")
