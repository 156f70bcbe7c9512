"""`pump redrive` as a process of its own, to be interrupted and killed."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path

import attrs

_LOOK_S = 0.02
_PATIENCE_S = 30.0


@attrs.define(eq=False)
class Program:
    """A redrive in a folder, with its runs in `runs`."""

    folder: Path
    arguments: tuple[str, ...]
    environment: Mapping[str, str] = attrs.field(factory=dict)
    process: subprocess.Popen[str] = attrs.field(init=False)

    def start(self, *more: str) -> Program:
        command = [sys.executable, "-m", "pump", "redrive", *self.arguments, "--run", "runs"]
        self.process = subprocess.Popen(
            [*command, *more],
            cwd=self.folder,
            env={"PATH": os.environ["PATH"], "HOME": str(self.folder), **self.environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        return self

    def end(self, within_s: float = 90.0) -> tuple[int, str, str]:
        """Its exit code, and what it said on stdout and stderr."""
        out, err = self.process.communicate(timeout=within_s)
        return self.process.returncode, out, err

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()

    def wait_for_batches(self, count: int) -> None:
        """Return when so many batches are recorded as sent."""
        pause, looks = threading.Event(), 0
        while self._sent_count() < count:
            looks += 1
            assert self.process.poll() is None, self.process.communicate()
            assert looks * _LOOK_S < _PATIENCE_S, "it does not send"
            pause.wait(_LOOK_S)

    def _sent_count(self) -> int:
        records = (self.folder / "runs").glob("*/*.record")
        return sum(path.read_bytes().count(b'{"sent":') for path in records)
