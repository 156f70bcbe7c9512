"""`pump local` as a child process, the way a user starts it: an endpoint and a data folder.

By hand: `.venv/bin/pump local --port 0 --data FOLDER`.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import attrs

from . import launch_pump_local

START_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 10.0
_LISTENING = re.compile(r"listening on (http://\S+)")


class PumpLocalFailed(Exception):
    """`pump local` did not start; the message says why."""


@attrs.define(eq=False)
class PumpLocal:
    """One server on one data folder. It can be ended or killed, and started again on it."""

    folder: Path
    arguments: tuple[str, ...] = ()
    url: str = attrs.field(init=False, default="")
    _process: subprocess.Popen[str] | None = attrs.field(init=False, default=None)
    _reader: threading.Thread | None = attrs.field(init=False, default=None)

    @property
    def pid(self) -> int:
        return self._running().pid

    def start(self) -> None:
        """Return when the server listens; its port is another one after each start."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    launch_pump_local.__file__,
                    *("--port", "0", "--data", str(self.folder / "data")),
                    *self.arguments,
                ],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                env=_environment(self.folder),
                text=True,
            )
        self.url = self._read_url(self._process)

    def stop(self) -> int:
        """End it as Ctrl-C does in a service manager, with SIGTERM; returns its exit code."""
        process = self._running()
        process.terminate()
        return self._wait(process)

    def kill(self) -> None:
        """End it with no chance to write anything more."""
        process = self._running()
        process.kill()
        self._wait(process)

    def close(self) -> None:
        """Leave no process behind."""
        if self._process is not None:
            self.kill()

    def log(self) -> str:
        """What the server wrote to stderr, over all its lives."""
        return self._log.read_text()

    @property
    def _log(self) -> Path:
        return self.folder / "server.log"

    def _running(self) -> subprocess.Popen[str]:
        if self._process is None:
            raise RuntimeError("pump local is not running")
        return self._process

    def _wait(self, process: subprocess.Popen[str]) -> int:
        code = process.wait(STOP_TIMEOUT_S)
        if self._reader is not None:
            self._reader.join()
        self._process = None
        return code

    def _read_url(self, process: subprocess.Popen[str]) -> str:
        """The endpoint it prints. The rest of its output is read too, or it would block on it."""
        found: list[str] = []
        said: list[str] = []
        is_known = threading.Event()

        def read() -> None:
            assert process.stdout is not None
            with process.stdout as lines:
                for line in lines:
                    said.append(line)
                    if not found and (match := _LISTENING.search(line)):
                        found.append(match[1])
                        is_known.set()
            is_known.set()

        self._reader = threading.Thread(target=read, name="pump-local-output", daemon=True)
        self._reader.start()
        is_known.wait(START_TIMEOUT_S)
        if not found:
            self.kill()
            raise PumpLocalFailed(f"pump local did not start:\n{''.join(said)}{self.log()}")
        return found[0]


@contextmanager
def pump_local(folder: Path, *arguments: str) -> Iterator[PumpLocal]:
    """A server of the caller's own, on data in that folder; killed at the end."""
    folder.mkdir(parents=True, exist_ok=True)
    server = PumpLocal(folder, arguments)
    server.start()
    try:
        yield server
    finally:
        server.close()


def _environment(home: Path) -> dict[str, str]:
    """Nothing of the developer's own settings but the path."""
    return {"PATH": os.environ.get("PATH", os.defpath), "HOME": str(home)}
