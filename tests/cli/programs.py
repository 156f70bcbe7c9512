"""`pump` as a process of its own, waited for by what it prints."""

import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

PATIENCE_S = 90.0
"""Far more than any step takes, so that a busy machine fails no test."""
PUMP = [sys.executable, "-m", "pump"]


def environment(**extra: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PUMP_")}
    return {**kept, "PYTHONUNBUFFERED": "1", **extra}


def pump(
    *arguments: str, folder: Path, stdin: str | None = None, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    return run_to_its_end(*PUMP, *arguments, folder=folder, stdin=stdin, env=env)


def run_to_its_end(
    *command: str, folder: Path, stdin: str | None = None, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run any program there."""
    return subprocess.run(
        command,
        cwd=folder,
        env=environment(**(env or {})),
        input=stdin,
        stdin=subprocess.DEVNULL if stdin is None else None,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


class Lines:
    """The lines of a stream, as they come."""

    def __init__(self, stream: IO[str]) -> None:
        self.seen: list[str] = []
        self._coming: queue.Queue[str | None] = queue.Queue()
        self._reader = threading.Thread(target=self._read, args=(stream,), daemon=True)
        self._reader.start()

    def wait_for(self, text: str) -> str:
        """The next line that holds `text`."""
        while True:
            try:
                line = self._coming.get(timeout=PATIENCE_S)
            except queue.Empty:
                raise AssertionError(f"no {text!r} came after {self.seen}") from None
            if line is None:
                raise AssertionError(f"ended without {text!r}: {self.seen}")
            self.seen.append(line)
            if text in line:
                return line

    def rest(self) -> list[str]:
        """Every line, once the stream has ended."""
        self._reader.join(PATIENCE_S)
        while (line := self._coming.get(timeout=PATIENCE_S)) is not None:
            self.seen.append(line)
        self._coming.put(None)
        return self.seen

    def events(self) -> list[dict[str, Any]]:
        """Every line as a JSON object, once the stream has ended."""
        return [json.loads(line) for line in self.rest()]

    def _read(self, stream: IO[str]) -> None:
        for line in stream:
            self._coming.put(line.rstrip("\n"))
        stream.close()
        self._coming.put(None)


class Program:
    """A `pump` that goes on."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        assert process.stdout is not None
        assert process.stderr is not None
        self.process = process
        self.out = Lines(process.stdout)
        self.err = Lines(process.stderr)

    def signal(self, number: signal.Signals = signal.SIGTERM) -> None:
        self.process.send_signal(number)

    def wait(self) -> int:
        return self.process.wait(PATIENCE_S)


def _hear_ctrl_c() -> None:
    # A shell that starts the tests in the background has its children ignore SIGINT.
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@contextmanager
def running(
    *arguments: str, folder: Path, env: Mapping[str, str] | None = None
) -> Iterator[Program]:
    """Start a command; it is killed at the end of the block unless it has ended."""
    process = subprocess.Popen(
        [*PUMP, *arguments],
        cwd=folder,
        env=environment(**(env or {})),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=_hear_ctrl_c,
    )
    program = Program(process)
    try:
        yield program
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(PATIENCE_S)
        program.out.rest()
        program.err.rest()
