"""A pump in a process of its own, followed through its output."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

import attrs

ROOT = Path(__file__).resolve().parents[2]


@attrs.frozen
class Line:
    """One thing the child did: start or end of a job, at which attempt."""

    word: str
    number: int
    attempt: int

    @classmethod
    def parse(cls, text: str) -> Line:
        """Read a line of the child's."""
        word, number, attempt = text.split()
        return cls(word, int(number), int(attempt))


class Child:
    """A running `child_pump`; killed at the end of the block if it still runs."""

    def __init__(self, folder: Path, *, pause_ms: int = 0, mode: str = "work") -> None:
        program = [sys.executable, "-m", "tests.kill.child_pump"]
        self._command = [*program, str(folder), str(pause_ms), mode]
        self._process: subprocess.Popen[str] | None = None

    @property
    def process(self) -> subprocess.Popen[str]:
        """The process, once started."""
        assert self._process is not None
        return self._process

    def lines(self) -> Iterator[Line]:
        """What it does, as it does it; ends with the process, after all it had written."""
        assert self.process.stdout is not None
        for text in self.process.stdout:
            yield Line.parse(text)

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(self._command, stdout=subprocess.PIPE, text=True, cwd=ROOT)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.process.kill()
        assert self.process.stdout is not None
        self.process.stdout.close()
        self.process.wait()
