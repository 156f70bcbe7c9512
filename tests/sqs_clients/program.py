"""A worker in a process of its own, watched through what it prints."""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress

import attrs

START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 15.0


@attrs.define(eq=False)
class Program:
    """A running program and the lines it has printed so far."""

    said: list[str] = attrs.field(factory=list)
    _lines: queue.SimpleQueue[str | None] = attrs.field(factory=queue.SimpleQueue)

    def hear(self, process: subprocess.Popen[str]) -> None:
        """Collect its lines until it ends."""
        assert process.stdout is not None
        with process.stdout as lines:
            for line in lines:
                self._lines.put(line)
        self._lines.put(None)

    def expect(self, text: str, timeout_s: float = START_TIMEOUT_S) -> str:
        """The next line with that text; the test fails when the program ends or falls silent."""
        while True:
            try:
                line = self._lines.get(timeout=timeout_s)
            except queue.Empty:
                line = None
            if line is None:
                raise AssertionError(f"never said {text!r}:\n{''.join(self.said)}")
            self.said.append(line)
            if text in line:
                return line


@contextmanager
def running(arguments: Sequence[str], environment: Mapping[str, str]) -> Iterator[Program]:
    """Run a program for the length of a block, then end it and whatever it has started."""
    process = subprocess.Popen(
        arguments,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    program = Program()
    listener = threading.Thread(target=program.hear, args=(process,), name="program", daemon=True)
    listener.start()
    try:
        yield program
    finally:
        process.terminate()
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        listener.join()
