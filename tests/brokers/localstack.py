"""One LocalStack for a whole test run, started by whoever needs it first.

A run owns a folder; the folder's `owner.lock` is held by the process that made it. The server
watches that lock and ends when it is free, so nothing survives a run, killed or not. By hand:

    .venv/bin/python -m tests.brokers.localstack
"""

from __future__ import annotations

import fcntl
import http.client
import json
import os
import shutil
import signal
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import attrs

from . import launch_localstack

ROOT = Path(__file__).resolve().parents[2]
PYTHON = ROOT / ".venv-localstack" / "bin" / "python"
# A first start compiles LocalStack's modules, which takes about ten seconds.
START_TIMEOUT_S = 90.0
STOP_TIMEOUT_S = 10.0


class LocalStackFailed(Exception):
    """LocalStack did not start; the message says why."""


@attrs.frozen
class LocalStack:
    """A server that answers."""

    port: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


@contextmanager
def owned_folder() -> Iterator[Path]:
    """A folder for one run; at the end its server is gone and so is the folder."""
    folder = Path(tempfile.mkdtemp(prefix="pumphouse-localstack-"))
    owner = _locked(folder / "owner.lock")
    try:
        yield folder
    finally:
        # Opened first: the server removes the folder before it ends.
        with (folder / "server.lock").open("ab") as server:
            owner.close()
            _wait_until_free(server)
        shutil.rmtree(folder, ignore_errors=True)


def server_in(folder: Path) -> LocalStack:
    """The folder's server, started if need be; safe to call from many processes at once."""
    with _locked(folder / "start.lock"):
        if (failure := folder / "failure").exists():
            raise LocalStackFailed(failure.read_text())
        if not (ready := folder / "ready").exists():
            try:
                ready.write_text(str(_start(folder)))
            except LocalStackFailed as error:
                failure.write_text(str(error))
                raise
        return LocalStack(int(ready.read_text()))


def _start(folder: Path) -> int:
    if not PYTHON.exists():
        raise LocalStackFailed(
            f"LocalStack is not installed ({PYTHON.relative_to(ROOT)} is missing): "
            "run `make test-brokers`, which installs it"
        )
    log = folder / "server.log"
    with log.open("wb") as output:
        launched = subprocess.run(
            # -P: this folder holds a `localstack.py` of its own.
            [PYTHON, "-P", launch_localstack.__file__, folder],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=_environment(folder),
            check=False,
        )
    try:
        if launched.returncode != 0:
            raise LocalStackFailed(f"its launcher ended with {launched.returncode}")
        port = int((folder / "port").read_text())
        _check_health(port)
    except (LocalStackFailed, OSError, http.client.HTTPException) as error:
        raise LocalStackFailed(f"LocalStack did not start: {error}\n{log.read_text()}") from error
    return port


def _environment(folder: Path) -> dict[str, str]:
    """Nothing of the developer's own settings but the path."""
    return {"PATH": os.environ.get("PATH", os.defpath), "HOME": str(folder)}


def _check_health(port: int) -> None:
    """Return when every service runs. The port is open already, so one request simply waits."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=START_TIMEOUT_S)
    try:
        connection.request("GET", "/_localstack/health")
        services = json.loads(connection.getresponse().read())["services"]
    finally:
        connection.close()
    broken = {name: services.get(name) for name in launch_localstack.SERVICES}
    broken = {name: state for name, state in broken.items() if state != "running"}
    if broken:
        raise LocalStackFailed(f"services are not running: {broken}")


def _locked(path: Path) -> IO[bytes]:
    """The file, locked until it is closed."""
    file = path.open("ab")
    fcntl.flock(file, fcntl.LOCK_EX)
    return file


def _wait_until_free(file: IO[bytes]) -> None:
    waiter = threading.Event()
    for _ in range(int(STOP_TIMEOUT_S / 0.01)):
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            waiter.wait(0.01)
        else:
            return
    raise LocalStackFailed(f"LocalStack did not end within {STOP_TIMEOUT_S:g} s")


def main() -> None:
    """Serve until Ctrl-C or SIGTERM."""
    ends = {signal.SIGINT, signal.SIGTERM}
    with owned_folder() as folder:
        print(server_in(folder).url, flush=True)
        signal.pthread_sigmask(signal.SIG_BLOCK, ends)
        signal.sigwait(ends)


if __name__ == "__main__":
    main()
